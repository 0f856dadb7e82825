"""Ages in words, with one unit."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

_UNITS = ((86400, gettext_noop("%d d")), (3600, gettext_noop("%d h")), (60, gettext_noop("%d min")))


def age(seconds: float | None) -> str:
    """95 → `1 min`; None → a dash. In the reader's language."""
    if seconds is None:
        return "–"
    for size, text in _UNITS:
        if seconds >= size:
            return _(text) % (seconds // size)
    return _("%.1f s") % seconds if seconds < 10 else _("%d s") % seconds
