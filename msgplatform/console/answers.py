"""Names of answers, by which failures are grouped, in the reader's language.

They are stored as they are written here, and documented so: in English nothing changes.
"""

from __future__ import annotations

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

_PREFIXES = (_("poison: "), _("result "))
_NAMES = frozenset({
    # Notify: the HTTP engine's classes of errors, and deliveries that nobody tried.
    _("dns"), _("connect"), _("tls"), _("timeout"), _("reset"), _("too_large"),
    _("address_forbidden"), _("bad_url"), _("other"), _("not tried, breaker open"),
    # SMS: endings.
    _("failed"), _("expired"), _("unknown"),
    # CRM sync: classes of errors.
    _("retry"), _("throttled"), _("invalid"), _("conflict"), _("auth"), _("refused"), _("fault"),
    _("queue"),
})  # fmt: skip


def answer_title(answer: str) -> str:
    """A name that is not known, such as HTTP 503, stays as it is."""
    for prefix in _PREFIXES:
        if answer.startswith(prefix):
            return gettext(prefix) + answer_title(answer.removeprefix(prefix))
    return gettext(answer) if answer in _NAMES else answer
