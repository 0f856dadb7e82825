"""The two stores of messages, hot tables and archive, in one shape.

Read the hot one first: a message that moves meanwhile is in the archive before its hot rows are
deleted, so it may be found twice and is never missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, models
from django.db.models import QuerySet
from django.db.utils import InterfaceError, OperationalError, ProgrammingError
from django.utils.translation import gettext as _

from msgplatform.core import logging
from msgplatform.core.archive.ages import earliest_part
from msgplatform.core.archive.router import cold_alias
from msgplatform.core.errors import Unavailable, Undecryptable
from msgplatform.core.secrets import encryption
from notify.models import Attempt, BizMsg, ColdAttempt, ColdBizMsg, ColdReceiveMsg, ReceiveMsg

log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class Store:
    """The three tables of a store and their database; `cold` is the archive."""

    _messages: type[models.Model]
    _deliveries: type[models.Model]
    _attempts: type[models.Model]
    using: str
    cold: bool

    @property
    def messages(self) -> QuerySet[Any]:
        return self._messages._base_manager.using(self.using)

    @property
    def deliveries(self) -> QuerySet[Any]:
        return self._deliveries._base_manager.using(self.using)

    @property
    def attempts(self) -> QuerySet[Any]:
        return self._attempts._base_manager.using(self.using)

    def deliveries_of(self, message_ids: Sequence[int]) -> QuerySet[Any]:
        return self._children(self.deliveries.filter(msg_id__in=message_ids), message_ids)

    def attempts_of(self, delivery_ids: Sequence[int]) -> QuerySet[Any]:
        return self._children(self.attempts.filter(copy_id__in=delivery_ids), delivery_ids)

    def _children(self, rows: QuerySet[Any], parents: Sequence[int]) -> QuerySet[Any]:
        """No child is in an older partition than its parent, so older ones need not be searched."""
        if not self.cold or not parents:
            return rows
        return rows.filter(id__gte=earliest_part(min(parents)))


def hot() -> Store:
    return Store(BizMsg, ReceiveMsg, Attempt, DEFAULT_DB_ALIAS, cold=False)


def cold() -> Store:
    return Store(ColdBizMsg, ColdReceiveMsg, ColdAttempt, cold_alias(), cold=True)


@contextmanager
def reading(store: Store) -> Iterator[None]:
    """Raise Unavailable, with a sentence for people, when an archive in a database of its own
    cannot be read; an error of the main database is raised as it is."""
    try:
        yield
    # ProgrammingError: its tables do not exist, or not any more.
    except (OperationalError, InterfaceError, ProgrammingError) as error:
        if not store.cold or store.using == DEFAULT_DB_ALIAS:
            raise
        log.warning("archive_unreadable", why=str(error)[:200])
        raise Unavailable(
            _("The archive cannot be read at present; older messages are missing here.")
        ) from error


def unseal(message: Any) -> None:
    """Give an instance that is read, and never saved, its payload in clear. Raises Unavailable."""
    try:
        message.payload = encryption.unseal(bytes(message.payload))
    except Undecryptable as error:
        text = _("The payload is encrypted: %(why)s. Add the key, and restart.")
        raise Unavailable(text % {"why": error}) from error


def archive_warning() -> str:
    """A sentence when the archive cannot be read."""
    store = cold()
    try:
        with reading(store):
            store.messages.order_by().exists()
    except Unavailable as error:
        return str(error)
    return ""
