"""Asks a database in a thread beside the one that needs the answer, and waits only for a moment.

For a process that answers requests: it knows most of what it needs already, and a database that
hangs must hold up neither the request that happens to ask again nor those behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from django.db import connections

T = TypeVar("T")

PATIENCE_SECONDS = 2.0
_is_on = False


def switch_on() -> None:
    """This process is such a one, from now on."""
    global _is_on
    _is_on = True


def ask(work: Callable[[], T], patience: float = PATIENCE_SECONDS) -> T:
    """`work()`. In a process that has switched it on, TimeoutError when that takes longer than
    `patience` seconds; the work goes on nevertheless."""
    if not _is_on:
        return work()
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            answer.set_exception(error)
        finally:
            connections.close_all()

    try:
        threading.Thread(target=run, name="beside", daemon=True).start()
    except RuntimeError:  # no thread to be had: what the caller holds is let go by `work` alone
        run()
    return answer.result(patience)
