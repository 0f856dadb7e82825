"""Marks: monotone, repeatable, and a fixed number of statements for any number of records."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from crmsync.adapters.outcomes import Conflict, Invalid, Ok, Outcome, Retry, Throttled, Unknown
from crmsync.handler import marks
from crmsync.handler.answers import Answer, DeliveryResult, Unsent
from crmsync.models import ExceptionEntry, Item, Operation, Policy, Record, RecoveryEntry
from crmsync.recovery import actions
from msgplatform.core.data import sql
from tests.integration.crmsync import sync_support as sync
from tests.integration.crmsync.handler_marks import crm_of, mark
from tests.integration.crmsync.sync_support import Queued

pytestmark = pytest.mark.django_db(transaction=True)
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED, _HELD = Record.State
ANOTHER = "e" * 32


@pytest.fixture
def policy() -> Policy:
    made = sync.crm("sales", "http", settings={"url": "http://127.0.0.1/"}, retry_seconds=[0])
    return sync.policy(made)


def claimed_by_another(queued: Queued) -> None:
    """The lease ran out, and the poller has queued the records again."""
    Record.objects.filter(policy_id=queued.policy.pk).update(claimed_by=ANOTHER)


class TestSharedRequest:
    """A newer version with the same values was read while a record is in flight: it has no request
    of its own."""

    def test_it_is_confirmed_with_it(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        Record.objects.update(version=2)
        mark(queued, Ok("r-a"))
        record = queued.record("a")
        assert (record.state, record.sent_version) == (CONFIRMED, 2)

    def test_it_is_dead_with_it(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        Record.objects.update(version=2)
        mark(queued, Invalid("name", "no"))
        entry = RecoveryEntry.objects.get()
        assert (queued.record("a").state, entry.version) == (DEAD, 2)
        actions.edit_and_retry(entry.pk, {"name": "short"}, "ann")
        assert queued.record("a").state == WAITING


class TestWhoseClaimItIs:
    def test_a_success_applies_after_the_lease_was_lost(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        claimed_by_another(queued)
        mark(queued, Ok("r-a"))
        record = queued.record("a")
        assert (record.state, record.claimed_by, record.remote_id) == (CONFIRMED, "", "r-a")
        assert queued.counts() == (1, 0, 0, 1)
        queued.order.claim = ANOTHER  # the other handler's answer comes too
        mark(queued, Invalid("", "no"))
        assert queued.record("a").state == CONFIRMED
        assert queued.counts() == (1, 0, 0, 1)

    @pytest.mark.parametrize(
        "outcome", [Retry(0, "busy"), Unknown("?"), Invalid("", "x"), Conflict(""), Throttled(5)]
    )
    def test_anything_else_applies_only_to_what_carries_the_claim(
        self, policy: Policy, outcome: Outcome
    ) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        claimed_by_another(queued)
        before = queued.record("a")
        mark(queued, outcome)
        record = queued.record("a")
        assert (record.state, record.claimed_by, record.next_at, record.attempt) == (
            QUEUED, ANOTHER, before.next_at, 0,
        )  # fmt: skip
        assert queued.counts() == (0, 0, 0, None)
        assert not RecoveryEntry.objects.exists()
        assert Item.objects.count() == 1  # that it was said is known all the same

    def test_after_an_older_version_that_is_late_the_newest_is_sent_again(
        self, policy: Policy
    ) -> None:
        old = sync.on_its_way(policy, sync.requests("a"))
        operation = sync.newer(old, "a", version=5)
        Record.objects.update(claimed_by=ANOTHER, sending_operation=operation.pk)
        order = old.order
        new = Queued(policy, operation, sync.again(old))
        mark(new, Ok("r-a"))
        assert new.record("a").sent_version == 5
        old.order = order
        mark(old, Ok("r-a"))
        record = old.record("a")
        assert (record.state, record.sent_version, record.error_class) == (WAITING, 5, "unknown")
        assert record.sent_digest == record.digest
        assert new.counts() == (0, 0, 0, None)
        new.order = sync.again(new)
        assert [entry.request.version for entry in new.order.entries] == [5]
        mark(new, Ok("r-a"))
        assert (new.record("a").state, new.record("a").sent_version) == (CONFIRMED, 5)
        assert new.counts() == (1, 0, 0, 1)

    def test_one_with_the_same_values_changes_nothing(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        mark(queued, Ok("r-a"))
        Record.objects.update(version=2, sent_version=2)  # read later, and no call was needed
        mark(queued, Ok("r-a"))
        assert queued.record("a").state == CONFIRMED

    def test_a_late_success_of_an_older_version_leaves_what_is_on_its_way(
        self, policy: Policy
    ) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        sync.newer(queued, "a")
        claimed_by_another(queued)
        lease = queued.record("a").next_at
        mark(queued, Ok("r-a"))
        record = queued.record("a")
        assert (record.state, record.claimed_by, record.next_at) == (QUEUED, ANOTHER, lease)
        assert (record.sent_version, record.remote_id) == (1, "r-a")
        assert record.sent_digest != record.digest

    def test_what_is_dead_and_was_stored_after_all_is_confirmed(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        mark(queued, Invalid("", "no"))
        assert queued.record("a").state == DEAD
        mark(queued, Ok("r-a"))
        assert queued.record("a").state == CONFIRMED
        assert RecoveryEntry.objects.get().state == RecoveryEntry.State.SOLVED


class TestRepeated:
    def test_marked_twice_counts_once(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("abcd"))
        outcomes: list[Outcome | Unsent] = [
            Ok("r"),
            Invalid("f", "no"),
            Retry(0, "busy"),
            Unsent(3),
        ]
        mark(queued, *outcomes)
        states = queued.states()
        assert states == {"a": CONFIRMED, "b": DEAD, "c": RETRY, "d": WAITING}
        mark(queued, *outcomes)
        assert queued.states() == states
        assert queued.counts() == (1, 0, 1, None)
        assert RecoveryEntry.objects.count() == 1
        assert queued.record("c").attempt == 1

    def test_what_the_crm_said_and_cannot_be_stored_does_not_stop_the_others(
        self, policy: Policy
    ) -> None:
        queued = sync.on_its_way(policy, sync.requests("abc"))
        mark(queued, Ok("r-a"), Invalid("f", "half a letter: \ud83d"), Ok("\ud83d"))
        assert queued.states() == {"a": CONFIRMED, "b": DEAD, "c": CONFIRMED}
        assert queued.record("c").remote_id == ""
        assert RecoveryEntry.objects.get().error_class == "fault"
        assert queued.counts() == (2, 0, 1, 0)

    def test_an_id_that_is_too_long_is_not_stored(self, policy: Policy) -> None:
        queued = sync.on_its_way(policy, sync.requests("a"))
        mark(queued, Ok("x" * 300))
        assert (queued.record("a").state, queued.record("a").remote_id) == (CONFIRMED, "")


def test_no_record_waits_for_longer_than_a_day(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("abc"))
    mark(queued, Throttled(31 * 86_400.0), Retry(31 * 86_400.0, "busy"), Throttled(1e30))
    latest = sql.now() + timedelta(days=1)
    assert queued.states() == {"a": WAITING, "b": RETRY, "c": WAITING}
    assert all(record.next_at <= latest for record in queued.records())


def test_the_number_of_statements_does_not_grow_with_the_records(policy: Policy) -> None:
    counts = []
    for number in (4, 100):
        keys = [f"{number}-{n}" for n in range(number)]
        queued = sync.on_its_way(policy, sync.requests(keys))
        outcomes: list[Outcome | Unsent] = [Ok("r"), Invalid("", "x"), Retry(0, "y"), Unsent()] * (
            number // 4
        )
        crm, entries = crm_of(queued), queued.order.entries
        answers = [Answer(e, o) for e, o in zip(entries, outcomes, strict=True)]
        with CaptureQueriesContext(connection) as queries:
            marks.apply(crm, queued.order, DeliveryResult(answers))
        # Those about records: ids may be reserved meanwhile, and SQLite is asked for an index once.
        texts = [query["sql"] for query in queries]
        counts.append(sum("sync_" in text and "PRAGMA" not in text for text in texts))
    assert counts[0] == counts[1] > 5


def test_records_of_many_operations_in_one_order(policy: Policy) -> None:
    """As the retry queue has them."""
    made = [sync.on_its_way(policy, sync.requests([str(n)])) for n in range(30)]
    first = made[0]
    first.order.entries = [each.order.entries[0] for each in made]
    Record.objects.update(claimed_by=first.order.claim)
    mark(first, *([Ok("r")] * 20 + [Invalid("", "x")] * 10))
    results: list[Any] = [operation.result for operation in Operation.objects.order_by("id")]
    assert sorted(results) == [0] * 10 + [1] * 20
    assert not ExceptionEntry.objects.exists()
