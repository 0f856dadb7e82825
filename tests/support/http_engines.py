"""What the tests of the HTTP engine share: requests, names, and engines to be made fixtures of."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from msgplatform.core.http.engine import AddressGuard, Engine, Request, Response
from tests.support import http_sinks as sinks
from tests.support.http_sinks import Sink

LOOPBACK = ["127.0.0.0/8"]
JSON = ("content-type", "application/json")
# An engine with nothing to do waits a few times within half a second; one that spins waits hundreds
# of times, however slow the machine is.
MAX_WAITS = 30


def request(url: str, timeout: float = 60.0, **fields: Any) -> Request:
    return Request(url, fields.pop("body", b"{}"), fields.pop("headers", [JSON]), timeout, **fields)


def names(**known: str) -> Callable[[str], list[str]]:
    """A lookup that knows `name_test="address address"` as name.test."""

    def lookup(name: str) -> list[str]:
        try:
            return known[name.replace(".", "_")].split()
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None

    return lookup


def collect(engine: Engine, count: int, seconds: float = 180.0) -> list[Response]:
    responses: list[Response] = []
    end = time.monotonic() + seconds
    while len(responses) < count:
        assert time.monotonic() < end, f"{len(responses)} of {count} after {seconds} s"
        responses += engine.poll(1.0)
    assert len(responses) == count
    return responses


def send(engine: Engine, *requests: Request) -> list[Response]:
    """Responses in the order of the requests."""
    for each in requests:
        engine.submit(each)
    answers = {id(response.request): response for response in collect(engine, len(requests))}
    return [answers[id(each)] for each in requests]


def count_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which the engine waits, at each of its waits from now on."""
    waits: list[float] = []
    wait = engine._readiness.wait

    def counted(seconds: float) -> list[tuple[int, int]]:
        waits.append(seconds)
        return wait(seconds)

    monkeypatch.setattr(engine._readiness, "wait", counted)
    return waits


def engine() -> Iterator[Engine]:
    with closing(Engine(AddressGuard(LOOPBACK))) as engine:
        yield engine


def happy() -> Iterator[Sink]:
    with Sink(sinks.answering()) as sink:
        yield sink
