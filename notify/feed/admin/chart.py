"""Lines over time, as numbers that a template draws in SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import formats, timezone

WIDTH, HEIGHT = 960, 120
_TOP = 1.08  # of the highest value, so that its line is seen whole
# A value, None where nothing is known: there the line is broken.
Value = float | None


@dataclass(frozen=True)
class Moment:
    """A place of the chart that shows its value when it is pointed at."""

    x: str
    width: str
    title: str


@dataclass(frozen=True)
class Chart:
    """`lines` are the unbroken parts of the line, `limit` is the height of a dashed one."""

    title: str
    lines: Sequence[str]
    moments: Sequence[Moment]
    first: str
    last: str
    highest: str
    now: str
    limit: str = ""
    note: str = ""
    width: int = WIDTH
    height: int = HEIGHT


def chart(
    title: str,
    times: Sequence[datetime],
    values: Sequence[Value],
    say: Callable[[float], str],
    *,
    limit: float | None = None,
    note: str = "",
    least_top: float = 0.0,
) -> Chart:
    """A chart with one value for each time; `say` writes a value with its unit. The height stands
    for the highest value, or for `least_top` if that is larger."""
    known = [value for value in values if value is not None]
    highest = max(known, default=0.0)
    top = max(highest, least_top, limit or 0.0) * _TOP or 1.0
    step = WIDTH / max(1, len(times) - 1)
    return Chart(
        title=title,
        lines=_lines(values, step, top),
        moments=[
            Moment(f"{(n - 0.5) * step:.1f}", f"{step:.1f}", f"{_at(at)}: {say(value)}")
            for n, (at, value) in enumerate(zip(times, values, strict=True))
            if value is not None
        ],
        first=_at(times[0]) if times else "",
        last=_at(times[-1]) if times else "",
        highest=say(highest),
        now=say(known[-1]) if known else "",
        limit=_y(limit, top) if limit is not None else "",
        note=note,
    )


def _lines(values: Sequence[Value], step: float, top: float) -> list[str]:
    parts: list[list[str]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{n * step:.1f},{_y(value, top)}")
    # SVG draws nothing for a line of one point, so its point is there twice.
    return [" ".join(part if len(part) > 1 else part * 2) for part in parts if part]


def _y(value: float, top: float) -> str:
    # As text, because a template would write the language's decimal comma.
    return f"{HEIGHT - value / top * HEIGHT:.1f}"


def _at(moment: datetime) -> str:
    return formats.date_format(timezone.localtime(moment), "m-d H:i")
