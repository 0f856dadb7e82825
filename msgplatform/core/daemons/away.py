"""What "a server is unavailable" looks like: wait and go on, never exit, blame no item."""

from __future__ import annotations

from django.db.utils import InterfaceError, OperationalError

from msgplatform.core.connections import RedisError
from msgplatform.core.errors import Temporary

AWAY = (OperationalError, InterfaceError, RedisError, Temporary)
