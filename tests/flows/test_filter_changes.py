"""Filters that change under load while programs are killed: nothing is lost, and nothing that a
filter leaves out comes after the second from which it was said to hold."""

import itertools
import os
import random
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from demo.connection import Connection
from demo.notify.traffic import MESSAGES
from demo.script import Script, spread
from tests.cluster import DAEMONS, Cluster
from tests.flows.conftest import CRASH_KINDS
from tests.flows.traffic import cast

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
LARGEST = 100
STEP = 5 if FULL else 15
DELIVERED_BETWEEN = 300 if FULL else 60  # between two changes
MANAGER = """
import json
from msgplatform.doors.api.access import keys
print(json.dumps(keys.create(None, "filters", ["manage:subscriptions"])[1]))
"""


@dataclass(frozen=True)
class Published:
    """An event that was accepted; `began_at` is the publisher's unix time before its request."""

    id: str
    number: int
    began_at: float


@pytest.mark.parametrize("cluster", CRASH_KINDS, indirect=True)
def test_filters_change_under_load(cluster: Cluster) -> None:
    accepted: list[Published] = []
    is_over = threading.Event()
    with cast(cluster, {"all": [], "some": []}, {"orders": ["all", "some"]}) as (tokens, sinks):
        manager = cluster.script(MANAGER)

        def publish(connection: Connection, order: int) -> None:
            number, began_at = random.randrange(LARGEST), time.time()
            event = {"event_type": "order.paid", "payload": {"n": number, "at": order}}
            answer = Script(connection, tokens["orders"]).send(MESSAGES, event)
            accepted.append(Published(str(answer["id"]), number, began_at))

        orders = itertools.takewhile(lambda _: not is_over.is_set(), itertools.count())
        publishing = threading.Thread(target=spread, args=(cluster.base_url, publish, orders, 3))
        publishing.start()
        # Since when (unix seconds) at least which number comes; the bounds rise, so that an event
        # that is split later obeys the same or a stricter one.
        bounds: list[tuple[float, int]] = []
        try:
            for step, bound in enumerate(range(STEP, LARGEST - STEP, STEP)):
                change: dict[str, Any] = {"filter": {"data": {"n": {"$gte": bound}}}}
                answer = cluster.put("/api/v1/subscriptions/orders/some", change, manager)
                since = datetime.fromisoformat(answer["filter_since"]).timestamp()
                bounds.append((since, bound))
                before = len(sinks["all"].lines())
                cluster.restart(DAEMONS[step % len(DAEMONS)])  # by SIGKILL
                cluster.wait_until(
                    lambda before=before: (
                        len(sinks["all"].lines()) > before + DELIVERED_BETWEEN
                        and time.time() > bounds[-1][0]
                    ),
                    "deliveries between two changes",
                )
        finally:
            is_over.set()
            publishing.join()
        last_bound = bounds[-1][1]
        everything = {event.id for event in accepted}
        always = {event.id for event in accepted if event.number >= last_bound}
        cluster.wait_until(lambda: sinks["all"].ids() >= everything, "events without a filter")
        cluster.wait_until(lambda: sinks["some"].ids() >= always, "events that no filter left out")
        arrived = sinks["some"].ids()
        too_many = [
            event
            for event in accepted
            if event.id in arrived
            and any(since <= event.began_at and event.number < bound for since, bound in bounds)
        ]
        obeyed = sum(event.began_at >= bounds[0][0] for event in accepted)
        print(f"{len(accepted)} accepted, {obeyed} since the first filter, {len(arrived)} came")
        assert too_many == []
        assert arrived <= everything
        assert obeyed > 100
