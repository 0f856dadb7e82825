"""Operations of which every record was stored at its first try: no items, and the same story."""

from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from crmsync.adapters.outcomes import Ok, Retry
from crmsync.handler import marks
from crmsync.handler.answers import Answer, DeliveryResult
from crmsync.messages import timeline
from crmsync.messages.states import CrmState, read_problems
from crmsync.models import Item, Operation, Policy, Record
from crmsync.orders import dump
from msgplatform.core.data import sql
from tests.integration.crmsync import sync_support as sync
from tests.integration.crmsync.handler_marks import crm_of, mark
from tests.integration.crmsync.sync_support import Queued

pytestmark = pytest.mark.django_db(transaction=True)
_State = Record.State


@pytest.fixture
def policy() -> Policy:
    made = sync.crm("sales", "http", settings={"url": "http://127.0.0.1/"}, retry_seconds=[0])
    return sync.policy(made)


def stored(queued: Queued) -> Operation:
    queued.operation.refresh_from_db()
    return queued.operation


def newer(queued: Queued, key: str, version: int) -> Queued:
    """A newer version of a confirmed record, on its way alone."""
    record = queued.record(key)
    request = msgspec.structs.replace(
        sync.requests([key], version)[0], previous=record.operation_id
    )
    operation = sync.newer(queued, [key], version)
    Operation.objects.filter(pk=operation.pk).update(data=dump([request]))
    Record.objects.filter(pk=record.pk).update(state=_State.WAITING, next_at=sql.now())
    return Queued(queued.policy, operation, sync.again(queued))


def story(queued: Queued, key: str) -> list[tuple[int, int, str, str]]:
    """Version, try, outcome and remote id, as the page of the record tells them."""
    read = timeline.read_tries([CrmState(queued.policy, queued.record(key))])
    return [(i.version, i.attempt, i.outcome, i.remote_id) for i in read.items]


def test_the_operation_tells_the_tries_of_all_its_records(policy: Policy) -> None:
    first = sync.on_its_way(policy, sync.requests("abc"))
    mark(first, *(Ok(f"r-{key}", created=True) for key in "abc"))
    second = newer(first, "a", 2)
    mark(second, Ok("r-a"))

    assert not Item.objects.exists()
    assert first.counts() == (3, 0, 0, 1)
    assert story(first, "a") == [(1, 1, "ok", "r-a"), (2, 1, "ok", "r-a")]
    assert story(first, "b") == [(1, 1, "ok", "r-b")]
    shown = timeline.first_tries(stored(first), 10)
    assert sorted(item.record_id for item in shown) == sorted(r.pk for r in first.records())
    assert shown[0].at.timestamp() * 1000 == pytest.approx(stored(first).end_at, abs=1)
    assert len(timeline.first_tries(first.operation, 2)) == 2


@pytest.mark.parametrize("why", ["another claim", "newer version", "adopted"])
def test_one_that_is_different_makes_items_of_all(policy: Policy, why: str) -> None:
    queued = sync.on_its_way(policy, sync.requests("abc"))
    changes: dict[str, dict[str, Any]] = {
        "another claim": {"claimed_by": "e" * 32},
        "adopted": {"is_adopted": True},
    }
    if why == "newer version":
        sync.newer(queued, "b")
    else:
        Record.objects.filter(key="b").update(**changes[why])
    mark(queued, *(Ok(f"r-{key}", created=False) for key in "abc"))
    assert Item.objects.count() == 3
    assert stored(queued).first_try_at is None
    state = _State.WAITING if why == "newer version" else _State.CONFIRMED
    assert queued.states() == {"a": _State.CONFIRMED, "b": state, "c": _State.CONFIRMED}
    assert queued.counts() == (3, 0, 0, 1)


def test_some_records_of_an_operation_have_items(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("abc"))
    queued.order.entries = queued.order.entries[:2]
    mark(queued, Ok("r-a"), Ok("r-b"))
    assert Item.objects.count() == 2
    assert queued.counts() == (2, 0, 0, None)
    queued.order.entries = sync.again(queued).entries
    queued.order.claim = queued.record("c").claimed_by
    mark(queued, Ok("r-c"))
    assert queued.counts() == (3, 0, 0, 1)
    assert stored(queued).first_try_at is None


def test_sent_again_it_has_an_item_beside_the_first_try(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("ab"))
    mark(queued, Ok("r-a"), Ok("r-b"))
    noted = stored(queued).first_try_at
    Operation.objects.filter(pk=queued.operation.pk).update(confirmed=0, end_at=None, result=None)
    Record.objects.update(state=_State.WAITING, next_at=sql.now(), sent_version=0)
    mark(Queued(policy, queued.operation, sync.again(queued)), Ok("r-a"))
    assert stored(queued).first_try_at == noted
    assert story(queued, "a") == [(1, 1, "ok", "r-a"), (1, 1, "ok", "r-a")]
    assert Item.objects.count() == 2


def test_a_repetition_after_a_lost_commit_changes_nothing(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("ab"))
    answers = [Answer(entry, Ok(f"r-{entry.request.key}")) for entry in queued.order.entries]
    marking = marks.Marking(crm_of(queued), queued.order, answers, answers, [], [1, 2])
    marking.write(is_uniform=True)
    marking.write(is_uniform=True)
    assert not Item.objects.exists()
    assert queued.counts() == (2, 0, 0, 1)


def test_the_reason_of_an_older_failure_is_not_that_of_a_newer_version(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("a"))
    mark(queued, Retry(0, "busy"))
    assert read_problems([queued.record("a")])[queued.record("a").pk] == ("busy", "", "retry")
    again = Queued(policy, queued.operation, sync.again(queued))
    again.order.entries[0].attempt = 1
    mark(again, Ok("r-a"))
    newer(queued, "a", 2)
    assert read_problems([queued.record("a")])[queued.record("a").pk] == ("", "", "")


def test_a_constant_number_of_statements(policy: Policy) -> None:
    numbers = []
    for count in (3, 300):
        queued = sync.on_its_way(policy, sync.requests(f"{count}-{n}" for n in range(count)))
        with CaptureQueriesContext(connection) as queries:
            answers = [Answer(entry, Ok(entry.request.key)) for entry in queued.order.entries]
            marks.apply(crm_of(queued), queued.order, DeliveryResult(answers))
        # Without those that reserve ids: when they come is a matter of seconds.
        texts = [query["sql"] for query in queries]
        numbers.append(sum("sync_" in text and "PRAGMA" not in text for text in texts))
        assert {r.remote_id for r in queued.records()} >= {f"{count}-0", f"{count}-2"}
    assert numbers[0] == numbers[1] > 1
