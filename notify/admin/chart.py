"""Bars of accepted and failed attempts over time, as numbers that a template draws in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from notify.monitor.statistics import Point

WIDTH, HEIGHT = 960, 120
_GAP = 0.2  # the share of a bar's place that stays empty
# A single failure among thousands must still be seen.
_LEAST = 2.0


@dataclass(frozen=True)
class Bar:
    """One step: failures stand on top of what was delivered. Lengths in the chart's units."""

    x: str
    width: str
    delivered_y: str
    delivered_height: str
    failed_y: str
    failed_height: str
    title: str


@dataclass(frozen=True)
class Chart:
    bars: Sequence[Bar]
    most: int
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT


def chart(points: Sequence[Point], by_day: bool = False) -> Chart:
    """`most` is what the full height stands for; 0 when nothing happened at all."""
    most = max((point.attempts for point in points), default=0)
    place = WIDTH / max(1, len(points))
    bars = []
    for number, point in enumerate(points):
        if not point.attempts:
            continue
        delivered = max(point.delivered / most * HEIGHT, _LEAST if point.delivered else 0.0)
        failed = max(point.failed / most * HEIGHT, _LEAST if point.failed else 0.0)
        # The least heights may push the top out of the picture.
        delivered = min(delivered, HEIGHT - failed)
        title = _("%(at)s: %(delivered)d delivered, %(failed)d failed attempts")
        at = _moment(point, by_day)
        # Lengths as text: a template would write them with the language's decimal comma.
        bars.append(
            Bar(
                x=f"{number * place + place * _GAP / 2:.2f}",
                width=f"{place * (1 - _GAP):.2f}",
                delivered_y=f"{HEIGHT - delivered:.2f}",
                delivered_height=f"{delivered:.2f}",
                failed_y=f"{HEIGHT - delivered - failed:.2f}",
                failed_height=f"{failed:.2f}",
                title=title % {"at": at, "delivered": point.delivered, "failed": point.failed},
            )
        )
    return Chart(
        bars,
        most,
        _moment(points[0], by_day) if points else "",
        _moment(points[-1], by_day) if points else "",
    )


def _moment(point: Point, by_day: bool) -> str:
    form = "Y-m-d" if by_day else "m-d H:i"
    return formats.date_format(timezone.localtime(point.at), form)
