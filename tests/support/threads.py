"""A system that has no thread left."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusing(prefix: str, after: int = 0) -> Iterator[None]:
    """No thread whose name begins with `prefix` can be started here, after so many of them."""
    start, count = threading.Thread.start, 0

    def start_or_refuse(thread: threading.Thread) -> None:
        nonlocal count
        if thread.name.startswith(prefix):
            if count == after:
                raise RuntimeError("can't start new thread")
            count += 1
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_or_refuse)
        yield
