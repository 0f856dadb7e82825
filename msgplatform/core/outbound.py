"""The setting OUTBOUND: while it is off, as in a rehearsal of a restore, the platform sends
nothing. Programs that would send take no work, so that no message fails or uses an attempt."""

from django.conf import settings
from django.utils.translation import gettext_noop as _

OFF = _("OUTBOUND is off: nothing leaves this platform.")


def is_off() -> bool:
    return not settings.OUTBOUND
