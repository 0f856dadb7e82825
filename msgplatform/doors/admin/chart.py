"""Charts over time: the numbers, for the template `console/chart.html`; `console/charts.js` draws
them with the theme's Chart.js."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.core import durations
from msgplatform.core.flows.text import Text

Tone = Literal["accepted", "good", "lost", "bad", "plain", "limit"]
Unit = Literal["count", "number", "seconds", "milliseconds", "share"]


# Fields go under the script's names: a page that is open during an update has the older script.
class Line(msgspec.Struct, frozen=True, rename={"as_bars": "bars", "is_area": "area"}):
    """A value for each time; None where the value is unknown. A line is broken at None. A bar shows
    None as 0: it has no height."""

    title: Text
    values: Sequence[float | None]
    tone: Tone = "plain"
    as_bars: bool = False
    is_area: bool = False

    @property
    def numbers(self) -> list[float]:
        """The values that are known."""
        if self.as_bars:
            return [value or 0 for value in self.values]
        return [value for value in self.values if value is not None]


class Chart(
    msgspec.Struct, frozen=True, rename={"min_top": "leastTop", "last_is_open": "lastIsOpen"}
):
    """`name` is unique on its page. `labels` writes the `times`."""

    name: str
    title: Text
    times: Sequence[str]
    lines: Sequence[Line]
    unit: Unit = "count"
    note: Text = ""
    min_top: float = 0.0  # the smallest maximum of the axis
    last_is_open: bool = False  # True if the last step has not ended

    @property
    def is_empty(self) -> bool:
        """True if no value is known, or all are 0."""
        return not any(value for line in self.lines for value in line.values)

    @property
    def summary(self) -> str:
        """The chart in words, for those who cannot see it."""
        parts = [
            _("%(line)s: highest %(highest)s, last %(last)s")
            % {"line": line.title, "highest": _number(max(values)), "last": _number(values[-1])}
            for line in self.lines
            if (values := line.numbers)
        ]
        return ". ".join([str(self.title), *parts])

    @property
    def data(self) -> str:
        """The data that the script draws, as JSON."""
        content: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return json.dumps({**content, "units": durations.age_units()})


def labels(times: Sequence[datetime], by_day: bool = False) -> list[str]:
    """Times in the reader's time zone, without the date if all are on one day."""
    if by_day:
        return [f"{at:%Y-%m-%d}" for at in times]
    local = [timezone.localtime(at) for at in times]
    form = "%H:%M" if len({at.date() for at in local}) < 2 else "%m-%d %H:%M"
    return [at.strftime(form) for at in local]


def _number(value: float) -> str:
    whole = round(value, 2) if value % 1 else int(value)
    return formats.number_format(whole, force_grouping=True)
