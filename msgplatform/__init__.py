"""The platform: what its flows have in common. `__version__` is the release, as in
pyproject.toml."""

import sys

__version__ = "0.1.0"

# redis-py loads OpenTelemetry's metrics wherever they are installed, for metrics of its own that
# the platform does not use: 3 MB and 50 ms in each program. A module that is None cannot be
# imported; `operation/trace_export` takes that back when a program records its first span.
for _name in ("opentelemetry.metrics", "opentelemetry.sdk.metrics"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]
