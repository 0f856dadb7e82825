"""A web application with long answers, and little patience for clients that do not read them."""

from collections.abc import Callable, Iterable
from typing import Any

from msgplatform.doors.web import bodies, wsgi  # before what follows: it sets Django up
from msgplatform.doors.web.application import Application
from msgplatform.doors.web.django_app import DjangoApp
from msgplatform.doors.web.fast_intake import FastIntake

__all__ = ["application", "wsgi"]

# More than the buffers of the system take for a client that reads nothing, and still one piece.
LONG = 4 * 1024 * 1024
bodies.SECONDS, bodies.MIN_PACE = 2.0, 1024**3


def _answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [])
    return [b"x" * (LONG if environ["PATH_INFO"] == "/long" else 1)]


application = Application(FastIntake([]), DjangoApp(_answer, threads=1))
