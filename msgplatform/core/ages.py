"""Ages in words, with one unit."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

_UNITS = ((86400, gettext_noop("%d d")), (3600, gettext_noop("%d h")), (60, gettext_noop("%d min")))


def written_units() -> list[tuple[float, str]]:
    """Seconds of a unit, and how a number of it is written in the reader's language, with %d for
    the number: for scripts. The largest comes first."""
    smaller = [(1, gettext_noop("%d s")), (0.001, gettext_noop("%d ms"))]
    return [(float(size), _(text)) for size, text in (*_UNITS, *smaller)]


def age(seconds: float | None) -> str:
    """95 → `1 min`; None → a dash. In the reader's language."""
    if seconds is None:
        return "–"
    for size, text in _UNITS:
        if seconds >= size:
            return _(text) % (seconds // size)
    return _("%.1f s") % seconds if seconds < 10 else _("%d s") % seconds
