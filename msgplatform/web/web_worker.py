"""What a web worker that `manage.py up` started serves: the WSGI application, and no orphan.

Granian forks its workers, and the kernel's "die with your parent" is not inherited by a fork.

Beyond WSGI, a response of granian's can be sent by another thread after the application has
returned. So a request that waits for its group's commit (`api/later.py`) needs no thread
meanwhile: many threads that wake at once for one interpreter cost more than the requests do.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from granian.server import mp

from msgplatform.api.later import ANSWERS_LATER, Later
from msgplatform.core.servers import child_process
from msgplatform.web.wsgi import application

__all__ = ["application"]

Headers = list[tuple[str, str]]
# Said by the final response, not by the one that stood for it.
_OF_THE_BODY = frozenset({"content-type", "content-length"})


class _Answer:
    """Granian's side of one request, with responses that come later."""

    __slots__ = ("_granian",)

    def __init__(self, granian: Any) -> None:
        self._granian = granian

    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None:
        self._granian.response_bytes(status, headers, body)

    def response_iter(self, status: int, headers: Headers, body: Any) -> None:
        response = body.inner
        if isinstance(response, Later):
            response.close()
            response.deliver(lambda final: self._send(final, headers))
        elif isinstance(response, HttpResponse):
            # In one piece: cheaper than a stream of one part.
            content = response.content
            response.close()
            self._granian.response_bytes(status, headers, content)
        else:
            self._granian.response_iter(status, headers, body)

    def _send(self, final: HttpResponse, headers: Headers) -> None:
        content = final.content
        kept = [pair for pair in headers if pair[0].lower() not in _OF_THE_BODY]
        kept += final.items()
        kept.append(("Content-Length", str(len(content))))
        self._granian.response_bytes(final.status_code, kept, content)


def _answering_later(wrap: Callable[..., Any]) -> Callable[..., Any]:
    """Granian's wrapper of a WSGI application, told that responses may come later."""

    def wrapped(callback: Any, *options: Any) -> Any:
        run = wrap(callback, *options)

        def serve(granian: Any, scope: dict[str, Any]) -> Any:
            scope[ANSWERS_LATER] = True
            return run(_Answer(granian), scope)

        return serve

    return wrapped


if _parent := multiprocessing.parent_process():
    child_process.die_with_parent(_parent.pid or 0)
    # The wrapper has no public name.
    mp._wsgi_call_wrap = _answering_later(mp._wsgi_call_wrap)
    # What was imported stays for ever: nothing to look through again and again. A request leaves
    # a few dozen objects in cycles, which may wait for some hundred requests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
