"""A dispatcher that is killed just before a commit leaves nothing wrong behind."""

import signal
from typing import Any

import pytest

from notify.feed.models import EventQueue
from tests.integration.feed.support import drain
from tests.integration.feed.timeline_world import (
    PEOPLE,
    Generator,
    check_drained,
    check_open,
    small,
)
from tests.support.children import child

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("small")]

__all__ = ["small"]
# Turns until it is killed, with bounds that a few users reach.
DISPATCHER = """
from django.conf import settings
settings.FEED_READ_FANOUT_ABOVE, settings.FEED_WRITE_FANOUT_BELOW = 3, 3
settings.FEED_FANOUT_BATCH = 1
settings.FEED_TIMELINE_LENGTH, settings.FEED_REBUILD_LENGTH = 5, 4
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.receiver import Receiver
from notify.feed.dispatcher.upkeep import Upkeep
workers = [Receiver("friend"), Receiver("vip"), Upkeep()]
while sum(worker.turn(Pace(events=2)) for worker in workers):
    pass
"""
KILLS = [
    "feed_upkeep_before_commit:1",
    "feed_before_commit:2",
    "feed_upkeep_before_commit:4",
    "feed_slice_before_commit:2",
    "feed_upkeep_before_commit:9",
    "feed_after_commit:1",
]


def test_timelines_are_right_after_kills(settings: Any) -> None:
    (
        settings.FEED_READ_FANOUT_ABOVE,
        settings.FEED_WRITE_FANOUT_BELOW,
        settings.FEED_FANOUT_BATCH,
    ) = 3, 3, 1
    generator = Generator(1)
    generator.steps[generator.dispatch] = 5
    for kill in KILLS:
        for _ in range(60):
            generator.step()
        with child(DISPATCHER, MSGPLATFORM_FAILPOINT=kill) as dispatcher:
            assert dispatcher.process.wait(120) == -signal.SIGKILL
        for uid in PEOPLE:
            check_open(generator.world, uid, visit=False)
    drain()
    assert not EventQueue.objects.exclude(status=EventQueue.Status.HANDLED).exists()
    for uid in PEOPLE:
        check_drained(generator.world, uid, [3, 100])
