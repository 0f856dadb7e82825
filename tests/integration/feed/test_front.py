"""Where a receiver begins to look, and that no waiting event stays behind."""

import pytest
from django.db import transaction

from msgplatform.core.data import sql
from notify.feed.dispatcher import queue
from notify.feed.dispatcher.queue import Front
from notify.feed.models import EventQueue

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def front(clock: Clock) -> Front:
    """Of a queue of ten events, of which the receiver has taken a full batch of four."""
    for qid in range(10, 20):
        add(qid)
    front = Front("friend", clock)
    assert take(front, 4) == [10, 11, 12, 13]
    return front


def add(qid: int) -> None:
    EventQueue.objects.create(qid=qid, biz_id=1, topic="friend", uid="ann", create_date=sql.now())


def take(front: Front, limit: int) -> list[int]:
    if not front.has_events():
        return []
    with transaction.atomic():
        events = front.lock(limit)
        queue.mark([event.qid for event in events], EventQueue.Status.HANDLED, sql.now())
    front.move(events, is_full=len(events) == limit)
    return [event.qid for event in events]


def test_a_full_batch_is_followed_by_what_is_behind_it(front: Front) -> None:
    add(5)
    assert take(front, 4) == [14, 15, 16, 17]


def test_what_began_to_wait_before_the_front_is_found_within_seconds(
    front: Front, clock: Clock
) -> None:
    add(5)
    clock.now += 10
    assert take(front, 4) == [5, 14, 15, 16]


def test_a_batch_that_is_not_full_is_followed_by_a_look_at_all(front: Front) -> None:
    add(5)
    assert take(front, 7) == [14, 15, 16, 17, 18, 19]
    assert take(front, 7) == [5]


def test_an_empty_queue_is_looked_at_as_a_whole(front: Front) -> None:
    add(5)
    assert take(front, 6) == [14, 15, 16, 17, 18, 19]
    assert take(front, 6) == []
    assert take(front, 6) == [5]
