#!/usr/bin/env python3
"""A picture that moves of a command in a terminal: what it prints, when it prints it.

    scripts/cast.py record run.cast -- make demo ARGS=--exit     runs it (asciicast v2)
    scripts/cast.py draw run.cast docs/images/demo.svg

The picture is an SVG without scripts: lines appear at their time, with pauses of two seconds at
most, and the last screen stays. Who asks for less motion sees that at once.
"""

import html
import json
import os
import pty
import re
import sys
import time
from pathlib import Path

COLUMNS, ROWS = 110, 30
MAX_PAUSE = 2.0  # seconds between two lines
LINE, DESCENT, CHARACTER, MARGIN = 17, 4, 7.83, 14  # pixels
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
STYLE = """
svg{{background:#16181d;border-radius:8px}}
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dae0;white-space:pre}}
.c{{fill:#7ee2a8}}
.l{{visibility:hidden;animation:on 1ms linear forwards}}
.s{{animation:up {seconds:.1f}s step-end forwards}}
@keyframes on{{to{{visibility:visible}}}}
@keyframes up{{{steps}}}
@media (prefers-reduced-motion:reduce){{
.l{{animation-delay:0s!important}}.s{{animation-duration:1ms}}
}}
"""


def record(path: Path, command: list[str]) -> int:
    """Run the command in a terminal of this size; its exit code."""
    start = time.monotonic()
    with path.open("w") as file:
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "command": " ".join(command)}
        file.write(json.dumps(header) + "\n")

        def read(terminal: int) -> bytes:
            data = os.read(terminal, 65536)
            event = [round(time.monotonic() - start, 3), "o", data.decode(errors="replace")]
            file.write(json.dumps(event) + "\n")
            return data

        status = pty.spawn(["env", f"COLUMNS={COLUMNS}", *command], read)
    return os.waitstatus_to_exitcode(status)


def timed_lines(path: Path) -> tuple[str, list[tuple[float, str]]]:
    """The command, and each line with the time at which it was whole; long lines are broken."""
    header, *events = map(json.loads, path.read_text().splitlines())
    lines: list[tuple[float, str]] = []
    last, shown, rest = 0.0, 0.0, ""
    for moment, _, text in events:
        shown += min(moment - last, MAX_PAUSE)
        last = moment
        *whole, rest = (rest + _CONTROL.sub("", text)).split("\n")
        for line in whole:
            line = line.rstrip("\r").rpartition("\r")[2].expandtabs()
            parts = [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)]
            lines += [(shown, part) for part in parts or [""]]
    return header["command"], lines


def draw(path: Path) -> str:
    """The SVG of a recording."""
    command, lines = timed_lines(path)
    begin = 1.0
    seconds = begin + max(moment for moment, _ in lines)
    rows = [f'<text class="c" y="{LINE - DESCENT}">$ {html.escape(command)}</text>']
    offsets = {0.0: 0}
    for number, (moment, line) in enumerate(lines, start=2):
        at = begin + moment
        text = html.escape(line, quote=False)
        delay = f'style="animation-delay:{at:.1f}s"'
        if text:
            rows.append(f'<text class="l" y="{number * LINE - DESCENT}" {delay}>{text}</text>')
        if number > ROWS:
            offsets[round(100 * at / seconds, 2)] = (number - ROWS) * LINE
    steps = "".join(f"{at}%{{transform:translateY(-{y}px)}}" for at, y in offsets.items())
    steps += f"to{{transform:translateY(-{max(offsets.values())}px)}}"
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}">'
        f"<title>{html.escape(command)}</title>"
        f"<style>{STYLE.format(seconds=seconds, steps=steps)}</style>"
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN:.0f}" height="{ROWS * LINE}">'
        f'<g class="s">{"".join(rows)}</g></svg></svg>\n'
    )


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["record"] and arguments[2:3] == ["--"] and len(arguments) > 3:
        return record(Path(arguments[1]), arguments[3:])
    if arguments[:1] == ["draw"] and len(arguments) == 3:
        Path(arguments[2]).write_text(draw(Path(arguments[1])))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
