import sys
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from django.apps import AppConfig

from msgplatform.core.tracing import spans


class TraceExportConfig(AppConfig):
    """Spans of traced messages go to a collector of OpenTelemetry."""

    name = "msgplatform.operation.trace_export"

    def ready(self) -> None:
        spans.starters.append(_start)


def _start(*arguments: Any) -> Any:
    return _export().start(*arguments)


@lru_cache(maxsize=1)
def _export() -> ModuleType:
    """The module `export`, imported at the first span: it loads OpenTelemetry."""
    for name in ("opentelemetry.metrics", "opentelemetry.sdk.metrics"):
        if name in sys.modules and sys.modules[name] is None:  # see `msgplatform/__init__.py`
            del sys.modules[name]
    return import_module("msgplatform.operation.trace_export.export")
