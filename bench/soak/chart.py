"""Line charts as SVG, one above the other, over the same time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _GAP = 900, 210, 62, 190, 34, 46
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#db2777", "#4b5563")
_TICKS = 4
Point = tuple[float, float]  # seconds, value


@dataclass(frozen=True)
class Panel:
    """`lines` by name; on a logarithmic axis values below `floor` are drawn at it."""

    title: str
    lines: Mapping[str, Sequence[Point]]
    is_logarithmic: bool = False
    floor: float = 1.0


def write(file: Path, panels: Sequence[Panel], seconds: float, marks: Sequence[float] = ()) -> None:
    """Write the chart; `marks` are moments, drawn as grey lines through all panels."""
    height = _TOP + len(panels) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _TOP + number * (_HEIGHT + _GAP), seconds or 1.0, marks)
    file.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _panel(panel: Panel, top: float, seconds: float, marks: Sequence[float]) -> list[str]:
    values = [value for line in panel.lines.values() for _, value in line]
    scale = _Scale(panel, max(values, default=1.0), top)
    inner = _WIDTH - _LEFT - _RIGHT

    def x(at: float) -> float:
        return _LEFT + inner * min(1.0, at / seconds)

    parts = [f'<text x="{_LEFT}" y="{top - 10}" font-weight="bold">{escape(panel.title)}</text>']
    for value in scale.ticks():
        y = scale.y(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{inner}" stroke="#e5e7eb"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.10g}</text>'
        )
    parts += [
        f'<path d="M{x(mark):.1f} {top}v{_HEIGHT}" stroke="#d1d5db" stroke-dasharray="2"/>'
        for mark in marks
    ]
    for part in range(_TICKS + 1):
        at = seconds * part / _TICKS
        parts.append(
            f'<text x="{x(at):.1f}" y="{top + _HEIGHT + 16}" text-anchor="middle">'
            f"{at / 60:.3g} min</text>"
        )
    for number, (name, line) in enumerate(panel.lines.items()):
        colour, points = (
            _COLOURS[number % len(_COLOURS)],
            " ".join(f"{x(at):.1f},{scale.y(value):.1f}" for at, value in line),
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        y = top + 12 + 16 * number
        parts.append(
            f'<path d="M{_WIDTH - _RIGHT + 12} {y - 4}h16" stroke="{colour}" stroke-width="3"/>'
        )
        parts.append(f'<text x="{_WIDTH - _RIGHT + 34}" y="{y}">{escape(name)}</text>')
    return parts


class _Scale:
    def __init__(self, panel: Panel, highest: float, top: float) -> None:
        self._panel, self._top = panel, top
        self._high = self._up(max(highest, panel.floor * 1.01))

    def y(self, value: float) -> float:
        floor, high = self._panel.floor, self._high
        if self._panel.is_logarithmic:
            part = math.log(max(value, floor) / floor) / math.log(high / floor)
        else:
            part = value / high
        return self._top + _HEIGHT * (1 - part)

    def ticks(self) -> list[float]:
        if not self._panel.is_logarithmic:
            return [self._high * part / _TICKS for part in range(_TICKS + 1)]
        decades = round(math.log10(self._high / self._panel.floor))
        return [self._panel.floor * 10**power for power in range(decades + 1)]

    def _up(self, value: float) -> float:
        """The next round number above a value."""
        power = 10 ** math.floor(math.log10(value))
        if self._panel.is_logarithmic:
            return float(self._panel.floor * 10 ** math.ceil(math.log10(value / self._panel.floor)))
        return float(next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value))
