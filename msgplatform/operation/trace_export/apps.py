import sys
from typing import Any

from django.apps import AppConfig

from msgplatform.core.tracing import spans


class TraceExportConfig(AppConfig):
    """Spans of traced messages go to a collector of OpenTelemetry."""

    name = "msgplatform.operation.trace_export"

    def ready(self) -> None:
        spans.set_exporter(_start)


def _start(*arguments: Any) -> Any:
    """Begin a span. OpenTelemetry is loaded by a program that records one, and by no other."""
    for name in ("opentelemetry.metrics", "opentelemetry.sdk.metrics"):
        if name in sys.modules and sys.modules[name] is None:  # see `msgplatform/__init__.py`
            del sys.modules[name]
    from msgplatform.operation.trace_export import export

    return export.start(*arguments)
