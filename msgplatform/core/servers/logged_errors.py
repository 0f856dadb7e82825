"""The errors in the logs of a run, for tests, the demo and the supervisor."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

_LEVELS = frozenset({"error", "critical"})
_TRACEBACK = "Traceback (most recent call last):"
# The event of an error that ended a program or a thread: Python printed the error, unlogged.
TRACEBACK = "traceback"
# Errors of granian, as in: [ERROR] Unexpected exit from worker-1
_WEB_SERVER_ERROR = re.compile(r"^\[(?:ERROR|CRITICAL)\] (.*)")
_MAX_EXAMPLE = 300  # characters


class LoggedError(NamedTuple):
    """An entry at level error or critical: its event, and its other values as one text."""

    event: str
    text: str


def unexpected_errors(logs: Path | str, expected_events: Collection[str] = ()) -> list[str]:
    """A line for each error event not in `expected_events`, with its count and its last text.

    `logs` is a folder with `*.log` files, the path of a log file, or the text of a log. A traceback
    outside of the JSON lines is the event TRACEBACK.
    """
    if isinstance(logs, str):
        logs_by_name = {"": logs}
    else:
        paths = sorted(logs.glob("*.log")) if logs.is_dir() else [logs]
        logs_by_name = {
            path.name: path.read_text(encoding="utf-8", errors="replace") for path in paths
        }
    lines = []
    for name, log in logs_by_name.items():
        errors = [error for error in read_errors(log) if error.event not in expected_events]
        counts = Counter(error.event for error in errors)
        last_texts = {error.event: error.text for error in errors}
        prefix = f"{name}: " if name else ""
        lines += [
            f"{prefix}{event} ({counts[event]}): {text}" for event, text in last_texts.items()
        ]
    return lines


def last_words(text: str) -> str:
    """The last error in a log, or the last line that is not JSON: why a program ended."""
    for line in reversed(text.splitlines()):
        if not line.startswith("{"):
            if line.strip():
                return line.strip()[:_MAX_EXAMPLE]
        elif error := _read_json_line(line):
            return f"{error.event}: {error.text}"[:_MAX_EXAMPLE]
    return ""


def read_errors(text: str) -> Iterator[LoggedError]:
    """The errors in a log, in their order."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("{"):
            if error := _read_json_line(line):
                yield error
        elif line.startswith(_TRACEBACK):
            yield LoggedError(TRACEBACK, _error_line(lines)[:_MAX_EXAMPLE])
        elif match := _WEB_SERVER_ERROR.match(line):
            yield LoggedError("web_server", match[1][:_MAX_EXAMPLE])


def _error_line(lines: Iterator[str]) -> str:
    """The first line that is not indented: the error at the end of a traceback. Further lines of
    its message, and notes, come after it."""
    return next((line for line in lines if line.strip() and not line[0].isspace()), "")


def _read_json_line(line: str) -> LoggedError | None:
    """The error of a JSON line; None for a line of another level."""
    try:
        entry = json.loads(line)
    except ValueError:  # a killed process has written a part of the line
        return None
    if not isinstance(entry, dict) or entry.get("level") not in _LEVELS:
        return None
    traceback = str(entry.get("exception", "")).rpartition(_TRACEBACK)[2]
    reason = _error_line(iter(traceback.splitlines())) or entry.get("why", "")
    facts = ", ".join(
        f"{name}={value}"
        for name, value in entry.items()
        if name not in {"event", "level", "logger", "timestamp", "exception", "why"}
    )
    text = " · ".join(part for part in (reason, facts) if part)
    return LoggedError(str(entry.get("event", "")), text[:_MAX_EXAMPLE])
