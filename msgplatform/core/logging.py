"""Logging. Each event is one line (JSON in production) with a name for programs."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

# Facts of this process, for every line.
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
    has the `cell`, if not ''."""
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
    # Django logs every answer with a status from 400 on, so that one caller could fill the disk.
    # `api/problems/error_pages.py` logs the errors that are our own fault, and a foreign Host.
    logging.getLogger("django.request").setLevel(logging.CRITICAL)
    logging.getLogger("django.security").setLevel(logging.CRITICAL)
    logging.getLogger("django.security.csrf").setLevel(logging.WARNING)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def get(name: str) -> Any:
    """A logger whose first argument names the event: `log.info("claimed", n=5)`."""
    return structlog.stdlib.get_logger(name)
