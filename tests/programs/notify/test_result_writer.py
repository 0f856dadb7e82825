"""The thread that writes results sleeps while there are none, and no result waits for its sleep."""

import random
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from msgplatform.core.queues import jobs
from notify import orders
from notify.orders import Result
from notify.sender import result_writer
from notify.sender.in_flight import ClaimedOrder
from notify.sender.result_writer import ResultWriter

SECONDS = 60.0
RESULTS = 300


@pytest.fixture
def writer(work_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResultWriter]:
    # A result that does not wake it is never written.
    monkeypatch.setattr(result_writer, "_IDLE_SECONDS", 3600.0)
    writer = ResultWriter()
    writer.start()
    yield writer
    writer.stop()


def test_no_result_waits_for_its_sleep(writer: ResultWriter) -> None:
    nothing: Any = None
    order = ClaimedOrder(nothing, nothing, open_items=RESULTS + 1, item_size=0, unsent_items=0)
    chance = random.Random(1)
    for number in range(RESULTS):
        writer.put(order, Result(number, 1, "claim", 1, "delivered", 200))
        # Meanwhile the thread falls asleep, or is about to.
        time.sleep(chance.choice([0, 0, 0.001, 0.02, 0.051, 0.053, 0.055]))
    deadline = time.monotonic() + SECONDS
    while order.open_items > 1:
        assert time.monotonic() < deadline, f"{order.open_items - 1} results were not written"
        time.sleep(0.005)
    assert 1 < jobs.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE] < RESULTS


def test_an_answer_that_json_cannot_carry_holds_up_no_other_result(writer: ResultWriter) -> None:
    nothing: Any = None
    order = ClaimedOrder(nothing, nothing, open_items=4, item_size=0, unsent_items=0)
    bodies = {1: "fine", 2: "\ud801", 3: "fine"}
    for number, body in bodies.items():
        result = Result(number, 1, "claim", 1, "failed", 500, response_body=body)
        writer.put(order, result)
    stored: dict[int, str] = {}
    deadline = time.monotonic() + SECONDS
    while len(stored) < len(bodies):
        assert time.monotonic() < deadline, f"only {stored} were written"
        time.sleep(0.005)
        if job := jobs.claim(orders.MARKER_QUEUE, 60):
            results = msgspec.convert(job.data, list[Result])
            stored |= {result.id: result.response_body for result in results}
    assert stored == bodies | {2: ""}
