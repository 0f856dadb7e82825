"""Logs: one line for each event, JSON in production; the event is a machine-readable name. And the
errors in the logs of programs, for an account of a whole run of the platform."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import structlog

# Facts of this process that each line has.
_facts: dict[str, str] = {}


def _add_facts(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> Any:
    entry.update(_facts)
    return entry


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    _add_facts,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure(level: str = "INFO", as_json: bool = True, cell: str = "") -> None:
    """Send structlog and the standard library's loggers to standard error in one format. Each line
    names the `cell`, unless it is ''."""
    _facts.update({"cell": cell} if cell else {})
    renderer: Any = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    tail: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        tail.append(structlog.processors.format_exc_info)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_SHARED, processors=[*tail, renderer])
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Django would log a line for each answer with a status from 400 on, so that one caller could
    # fill the disk. `api/problems/error_pages.py` logs the errors that are our own fault.
    logging.getLogger("django.request").setLevel(logging.CRITICAL)
    # The same page logs a foreign Host in one line, which is no error of ours.
    logging.getLogger("django.security.DisallowedHost").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def get(name: str) -> Any:
    """A logger whose first argument names the event: `log.info("claimed", n=5)`."""
    return structlog.stdlib.get_logger(name)


_LEVELS = frozenset({"error", "critical"})
_TRACEBACK = "Traceback (most recent call last):"
# An event of this name is an error that ended a program, or a thread of it, before it was logged.
TRACEBACK = "traceback"
# granian's lines are no JSON: [ERROR] Unexpected exit from worker-1
_OF_WEB_SERVER = re.compile(r"^\[(?:ERROR|CRITICAL)\] (.*)")
_MAX_EXAMPLE = 300


class LoggedError(NamedTuple):
    """An entry at level error: its event, and what it says."""

    event: str
    text: str


def unexpected_errors(logs: Path | str, expected_events: Collection[str] = ()) -> list[str]:
    """A line for each event at level error that is not in `expected_events`, with its count and its
    last example.

    `logs` is a folder whose `*.log` files are read, one log file, or the text of a log. A traceback
    outside of the structured lines is the event TRACEBACK.
    """
    lines = []
    for name, text in _texts(logs):
        last: dict[str, str] = {}
        counts: dict[str, int] = {}
        for entry in errors(text):
            if entry.event not in expected_events:
                last[entry.event] = entry.text
                counts[entry.event] = counts.get(entry.event, 0) + 1
        prefix = f"{name}: " if name else ""
        lines += [f"{prefix}{event} ({counts[event]}): {last[event]}" for event in last]
    return lines


def last_words(text: str) -> str:
    """The last line of a log that says something: of a program that has just ended, why it did."""
    for line in reversed(text.splitlines()):
        if not line.startswith("{"):
            if line.strip():
                return line.strip()[:_MAX_EXAMPLE]
        elif entry := next(_structured(line), None):
            return f"{entry.event}: {entry.text}"[:_MAX_EXAMPLE]
    return ""


def errors(text: str) -> Iterator[LoggedError]:
    """Entries at level error, in their order."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("{"):
            yield from _structured(line)
        elif line.startswith(_TRACEBACK):
            yield LoggedError(TRACEBACK, _last_words(lines))
        elif match := _OF_WEB_SERVER.match(line):
            yield LoggedError("web_server", match[1][:_MAX_EXAMPLE])


def _texts(logs: Path | str) -> Iterator[tuple[str, str]]:
    if isinstance(logs, str):
        yield "", logs
        return
    for path in sorted(logs.glob("*.log")) if logs.is_dir() else [logs]:
        yield path.name, path.read_text(encoding="utf-8", errors="replace")


def _structured(line: str) -> Iterator[LoggedError]:
    try:
        entry = json.loads(line)
    except ValueError:  # a process that was killed may have cut it
        return
    if isinstance(entry, dict) and entry.get("level") in _LEVELS:
        reason = entry.get("exception", "").strip().rpartition("\n")[2] or entry.get("why", "")
        facts = ", ".join(
            f"{name}={value}"
            for name, value in entry.items()
            if name not in {"event", "level", "logger", "timestamp", "exception", "why"}
        )
        text = " · ".join(part for part in (reason, facts) if part)
        yield LoggedError(str(entry.get("event", "")), text[:_MAX_EXAMPLE])


def _last_words(lines: Iterable[str]) -> str:
    """The line that ends a traceback: the first one that is not indented."""
    for line in lines:
        if line.strip() and not line[0].isspace():
            return line[:_MAX_EXAMPLE]
    return ""
