"""How the figures of flows are written."""

from __future__ import annotations

import math
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.admin import cells
from msgplatform.core.durations import age
from msgplatform.core.flows import Figure
from msgplatform.core.flows.activity import Counts

GOOD_SHARE = 0.99  # of deliveries that ended: below it a share is marked


def shown(figure: Figure, counts: Counts) -> Any:
    """With its unit; a dash when nothing was counted."""
    value = figure.of(counts)
    if value is None:
        return cells.NOTHING
    if figure.unit == "number":
        return f"{value:.1f}"
    if span := figure.span(counts):
        low, high = span
        if high == math.inf:
            return _("more than %s") % age(low)
        return _("%(low)s to %(high)s") % {"low": age(low), "high": age(high)}
    return age(value) if value >= 1 else _("%d ms") % round(value * 1000)
