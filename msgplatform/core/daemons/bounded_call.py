"""Call a function in a thread of its own, and wait only a moment for the result.

For a process that answers requests: most of what it needs is cached, and a hanging database must
delay neither the request that refreshes the cache nor later requests.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from django.db import connections

T = TypeVar("T")

PATIENCE_SECONDS = 2.0
_is_on = False


def switch_on() -> None:
    """Make `ask` use a thread in this process."""
    global _is_on
    _is_on = True


def ask(work: Callable[[], T], patience: float = PATIENCE_SECONDS) -> T:
    """Return `work()`. After `switch_on` raise TimeoutError if `work` takes longer than `patience`
    seconds; the thread then goes on without its caller."""
    return begin(work).result(patience) if _is_on else work()


def begin(work: Callable[[], T]) -> Future[T]:
    """Begin `work()` in a daemon thread with database connections of its own."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            answer.set_exception(error)
        finally:
            connections.close_all()

    try:
        threading.Thread(target=run, name="bounded-call", daemon=True).start()
    except RuntimeError:  # no thread can be started, and only `work` releases what the caller holds
        run()
    return answer
