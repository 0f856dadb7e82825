"""The setting OUTBOUND: while it is off, as for the rehearsal of a restore, nothing leaves the
platform. Programs that would send take up no work, so that nothing fails and no attempt is used."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext_noop as _

OFF = _("OUTBOUND is off: nothing leaves this platform.")


def is_off() -> bool:
    return not settings.OUTBOUND
