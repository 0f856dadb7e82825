"""Events that were set aside wait again, or are dismissed, in one job of the console."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bench.harness.plans import read_plan
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.models import Biz
from msgplatform.monitor import failure_groups
from notify.feed.actions.actions import resend_events
from notify.feed.dispatcher import fanout, queue, receiver
from notify.feed.dispatcher.pace import Pace
from notify.feed.dispatcher.upkeep import Upkeep
from notify.feed.flow import FLOW
from notify.feed.models import EventQueue, FeedBroadcast, FeedUser
from tests.support import small_pages
from tests.support.failure_times import tick
from tests.support.feed_rows import REASON, drain, event, post, related, set_aside, visited

pytestmark = pytest.mark.django_db(transaction=True)
_STATUS = EventQueue.Status
flow = FLOW


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def run(limit: int = 2, action: str = "resend", **given: Any) -> int:
    """The whole job, each of its steps twice as after a kill: nothing is done twice, so that what
    all of them did is what there was to do."""
    done, cursor = 0, ""
    while True:
        done += flow.action(action).step(given, cursor, limit).done
        step = flow.action(action).step(given, cursor, limit)
        done += step.done
        cursor = step.cursor
        if not cursor:
            return done


def counted(**given: Any) -> Counted:
    return flow.action("resend").count(given)


def statuses(*qids: int) -> list[int]:
    return [event(qid).status for qid in qids]


def test_all_wait_again_and_nothing_else_changes(biz: Biz) -> None:
    aside = [set_aside(biz, "ann", topic=("friend", "vip")[n % 2]) for n in range(7)]
    handled = post(biz, "bob")
    drain()
    assert counted() == Counted(7)
    assert run() == 7
    assert set(statuses(*aside)) == {_STATUS.WAITING}
    assert {event(qid).reason for qid in aside} == {""}
    assert statuses(handled) == [_STATUS.HANDLED]
    assert counted() == Counted(0)
    assert run() == 0


def test_a_replayed_event_reaches_its_recipients_once(
    biz: Biz, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails in the middle of its slices, and goes on where it was."""
    settings.FEED_FANOUT_BATCH = 3
    fans = [f"fan{n}" for n in range(8)]
    related(biz, *((fan, "follow", "star") for fan in fans))
    visited(biz, *fans)
    id = post(biz, "star", topic="vip")
    push = fanout.push_slice
    calls: list[str] = []
    broken: list[str] = []

    def failing(feed_id: int, part: fanout.Slice) -> int:
        calls.append(part.after)
        if part.after and len(broken) < 2:  # again when it is tried alone
            broken.append(part.after)
            raise ValueError("not now")
        return push(feed_id, part)

    monkeypatch.setattr(fanout, "push_slice", failing)
    for _ in range(4):
        receiver.Receiver("vip").turn(Pace())
    row = event(id)
    assert (row.status, row.reason) == (_STATUS.SET_ASIDE, "ValueError: not now")
    assert row.position == "follow:fan2"
    assert run() == 1
    drain()
    assert statuses(id) == [_STATUS.HANDLED]
    written = FeedBroadcast.objects.filter(feed_id=id).values_list("fri_uid", flat=True)
    assert sorted(written) == [*fans, "star"]
    assert calls[2] == "fan2"


def test_what_is_handled_meanwhile_stays(biz: Biz) -> None:
    """Somebody else replayed it after the page was read."""
    qid, other = set_aside(biz, "ann"), set_aside(biz, "ann")
    assert resend_events([qid]) == 1
    drain()
    assert resend_events([qid, other]) == 1
    assert statuses(qid, other) == [_STATUS.HANDLED, _STATUS.WAITING]


def test_what_is_selected(biz: Biz) -> None:
    other = Biz.objects.create(name="shop")
    friend, vip = set_aside(biz, "ann"), set_aside(biz, "ann", topic="vip")
    theirs, bobs = set_aside(other, "ann"), set_aside(biz, "bob")
    soon = f"{timezone.localtime() + timedelta(minutes=2):%Y-%m-%d %H:%M}"
    cases: tuple[tuple[dict[str, Any], list[int]], ...] = (
        ({"topic": "vip"}, [vip]),
        ({"biz": "shop"}, [theirs]),
        ({"user": "bob"}, [bobs]),
        ({"ids": f"{friend},{theirs},7"}, [friend, theirs]),
        ({"ids": f"{friend},{theirs}", "biz": "orders"}, [friend]),
        ({"since": soon}, []),
        ({"until": soon}, [friend, vip, theirs, bobs]),
    )
    for given, wanted in cases:
        assert counted(**given) == Counted(len(wanted)), given
        assert run(**given) == len(wanted)
        waiting = [q for q in (friend, vip, theirs, bobs) if event(q).status == _STATUS.WAITING]
        assert waiting == wanted
        EventQueue.objects.update(status=_STATUS.SET_ASIDE)


def test_one_that_fails_again_waits_for_another_job(biz: Biz) -> None:
    qid = set_aside(biz, "ann")
    begun = flow.action("resend").step({}, "", 5).cursor
    later = set_aside(biz, "ann")
    step = flow.action("resend").step({}, begun, 5)
    assert (step.done, step.cursor) == (1, "")
    assert statuses(qid, later) == [_STATUS.WAITING, _STATUS.SET_ASIDE]


@pytest.mark.parametrize("action", ["resend", "dismiss"])
def test_one_that_failed_anew_after_a_job_began_is_left_alone(biz: Biz, action: str) -> None:
    """Somebody replayed it meanwhile: nobody has seen the new reason."""
    qid = set_aside(biz, "ann")
    selection = flow.action(action).select({}, tick())
    tick()
    resend_events([qid])
    queue.set_aside(qid, ValueError("another one"))
    assert selection.apply(selection.page("", 5).ids).done == 0
    assert statuses(qid) == [_STATUS.SET_ASIDE]
    assert run(action=action) == 1


def test_a_page_looks_at_so_many(biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages.set_page_size(monkeypatch, 3)
    for n in range(8):
        set_aside(biz, "ann", topic=("friend", "vip")[n % 2])
    bobs = set_aside(biz, "bob")
    first = flow.action("resend").step({"user": "bob"}, "", 5).cursor
    step = flow.action("resend").step({"user": "bob"}, first, 5)
    assert (step.done, bool(step.cursor)) == (0, True)
    assert counted(user="bob") == Counted(1)
    assert run(user="bob") == 1
    assert statuses(bobs) == [_STATUS.WAITING]


@pytest.mark.parametrize(
    ("given", "field"),
    [({"topic": "all"}, "topic"), ({"ids": "x"}, "ids"), ({"since": "soon"}, "since"),
     ({"status": "waiting"}, "status")],
)  # fmt: skip
def test_what_is_wrong(given: dict[str, str], field: str) -> None:
    for ask in (lambda: counted(**given), lambda: flow.action("resend").step(given, "", 5)):
        with pytest.raises(InvalidInput) as caught:
            ask()
        assert caught.value.field == field


def test_a_page_is_read_from_the_index(biz: Biz) -> None:
    handled, aside = EventQueue.Status.HANDLED, EventQueue.Status.SET_ASIDE
    qids = [ids.new(0) for _ in range(3000)]
    columns = ("qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date",
               "position", "reason")  # fmt: skip
    now = sql.now()
    sql.insert(
        "eventqueue",
        columns,
        [
            (q, biz.pk, "friend", "post", handled if n % 10 else aside, "", "ann", now, "", "")
            for n, q in enumerate(qids)
        ],
    )
    chosen = flow.action("resend").select({"topic": "friend"}, sql.now() + timedelta(minutes=1))
    with CaptureQueriesContext(connection) as queries:
        assert len(chosen.page(str(qids[1500]), 100).ids) == 100
    (statement,) = [query["sql"] for query in queries.captured_queries]
    with connection.cursor() as cursor:
        (step,) = read_plan(cursor, statement.replace("%", "%%"))
    assert "eventqueue_to_handle" in str(step), tuple(step.values())
    assert "filesort" not in str(step), tuple(step.values())


def test_they_are_on_the_page_failures_until_they_are_replayed(biz: Biz) -> None:
    friends = [set_aside(biz, "ann", topic="friend") for _ in range(3)]
    set_aside(biz, "ann", topic="vip")
    queue.set_aside(friends[0], ValueError("again"))
    found = {(str(f.where), str(f.answer)): f for f in flow.health.failures()}
    assert {key: f.count for key, f in found.items()} == {
        ("events of topic friend", "ValueError"): 3, ("events of topic vip", "ValueError"): 1,
    }  # fmt: skip
    wanted = found["events of topic friend", "ValueError"]
    assert wanted.said == "ValueError: this one cannot be written"
    assert counted(**wanted.filter) == Counted(3)
    assert counted(**{**wanted.filter, "answer": "KeyError"}) == Counted(0)
    assert run(2, **wanted.filter) == 3
    assert [str(f.where) for f in flow.health.failures()] == ["events of topic vip"]


def test_an_acknowledged_event_that_fails_again_counts_until_it_is_replayed(biz: Biz) -> None:
    qid = set_aside(biz, "ann")
    (seen,) = flow.health.failures()
    snapshot = failure_groups.GroupSnapshot(seen.id, seen.lost, seen.last_at)
    assert failure_groups.acknowledge_group(FLOW, snapshot, "known", "ann") == 1
    tick()
    assert run() == 1
    queue.set_aside(qid, ValueError("again"))
    assert [failure.count for failure in flow.health.failures()] == [1]
    assert run() == 1
    assert list(flow.health.failures()) == []
    assert event(qid).handle_date is None


def test_the_preview_and_the_outcome(biz: Biz) -> None:
    aside = [set_aside(biz, uid, topic=("friend", "vip")[n > 1]) for n, uid in enumerate("abc")]
    preview = flow.action("resend").preview({})
    assert preview.counted == Counted(3)
    assert [(group.title, group.count) for group in preview.groups] == [
        ("friend · post", 2), ("vip · post", 1),
    ]  # fmt: skip
    assert {hit.id for hit in preview.sample} == set(map(str, aside))
    later = set_aside(biz, "dan")
    noted: list[str] = []
    step = flow.action("resend").step(
        {}, preview.cursor, 10, lambda ids: noted.extend(map(str, ids))
    )
    assert (step.done, noted) == (3, [str(qid) for qid in sorted(aside)])
    assert statuses(later) == [_STATUS.SET_ASIDE]
    assert flow.action("resend").outcome(noted) == dict.fromkeys(noted, "waiting")
    EventQueue.objects.filter(qid=aside[0]).update(status=_STATUS.SET_ASIDE)
    EventQueue.objects.filter(qid=aside[1]).update(status=_STATUS.HANDLED)
    EventQueue.objects.filter(qid=aside[2]).delete()
    found = flow.action("resend").outcome(noted)
    assert found == dict(zip(map(str, aside), ("failed", "arrived", "arrived"), strict=True))
    assert [hit.id for hit in flow.action("resend").lines(noted)] == noted


def test_dismissed_events_end_with_their_reasons(biz: Biz) -> None:
    qids = [set_aside(biz, "ann", topic=("friend", "vip")[n % 2]) for n in range(5)]
    bobs = set_aside(biz, "bob")
    assert [each.kind for each in flow.health.conditions()] == ["feed.set_aside"]
    preview = flow.action("dismiss").preview({"user": "ann"})
    assert (preview.counted, len(preview.sample)) == (Counted(5), 5)
    assert run(action="dismiss", user="ann") == 5
    for qid in qids:
        row = event(qid)
        assert (row.status, row.reason) == (_STATUS.HANDLED, REASON)
        assert row.handle_date is not None
    assert statuses(bobs) == [_STATUS.SET_ASIDE]
    assert [failure.count for failure in flow.health.failures()] == [1]
    assert (run(), run(action="dismiss")) == (1, 0)
    assert list(flow.health.conditions()) == []
    drain()
    assert statuses(*qids, bobs) == [_STATUS.HANDLED] * 6
    assert event(qids[0]).reason == REASON, "no dispatcher took it"


def test_an_author_whose_merging_was_dismissed_can_become_merged_later(
    biz: Biz, settings: Any
) -> None:
    settings.FEED_READ_FANOUT_ABOVE, settings.FEED_WRITE_FANOUT_BELOW = 2, 1
    merging = FeedUser.Merging

    def state() -> int:
        return FeedUser.objects.get(uid="star").merging

    related(biz, *((f"fan{n}", "follow", "star") for n in range(3)))
    assert state() == merging.BECOMING
    queue.set_aside(EventQueue.objects.get(kind="merge").pk, ValueError("this one cannot end"))
    assert run(action="dismiss") == 1
    assert state() == merging.PUSHED
    related(biz, ("fan3", "follow", "star"))
    upkeep = Upkeep()
    while upkeep.turn(Pace()):
        pass
    assert state() == merging.MERGED
