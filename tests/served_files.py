"""Static files that a test's client serves: a process looks for them once.

Each `Client` makes the middleware anew, and WhiteNoise then reads the size and the time of every
file of every package. That is 20 ms of CPU, more than most requests of a test take.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

_files: dict[tuple[object, ...], dict[str, Any]] = {}


def install() -> None:
    from whitenoise.middleware import WhiteNoiseMiddleware

    WhiteNoiseMiddleware.update_files_dictionary = _read_once(
        WhiteNoiseMiddleware.update_files_dictionary
    )
    WhiteNoiseMiddleware.add_files_from_finders = _read_once(
        WhiteNoiseMiddleware.add_files_from_finders
    )


def _read_once(read: Callable[..., None]) -> Callable[..., None]:
    """`read` adds files to those of the middleware."""

    @wraps(read)
    def add(middleware: Any, *place: str) -> None:
        root = middleware.static_root
        key = (read.__name__, *place, middleware.static_prefix, root, _collected_at(root))
        if key not in _files:
            earlier_files, middleware.files = middleware.files, {}
            read(middleware, *place)
            _files[key], middleware.files = middleware.files, earlier_files
        middleware.files |= _files[key]

    return add


def _collected_at(root: object) -> int:
    """Nanoseconds; 0 before anything was collected (`msgplatform/doors/web/static_files.py`)."""
    mark = Path(str(root)) / ".collected"
    return mark.stat().st_mtime_ns if mark.is_file() else 0
