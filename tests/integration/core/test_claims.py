"""Claims on a real database: every row is won, by one, for as long as its lease lasts."""

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Count, F, Max
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from bench.harness.plans import read_plan
from msgplatform.core.data import claims, sql
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog
from notify.models import ReceiveMsg
from tests.support.children import child, run

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

PENDING = BulkJob.objects.filter(state="pending")
HOUR = timedelta(hours=1)


def make(n: int, **fields: Any) -> list[int]:
    """Jobs 1 … n, pending and free unless `fields` say otherwise."""
    jobs = [BulkJob(id=id, flow="notify", created_by="test", **fields) for id in range(1, n + 1)]
    BulkJob.objects.bulk_create(jobs, batch_size=2000)
    return [job.id for job in jobs]


def until_over(claim: claims.Claim) -> None:
    """Wait until the lease is over by the database's clock."""
    while sql.now() <= claim.lease_until:
        time.sleep(0.02)


def test_rows_come_in_the_queryset_s_order_marked_and_leased() -> None:
    make(10)
    before = sql.now()
    claim = claims.claim(PENDING.order_by("-id"), limit=3, lease=60, changes={"state": "running"})
    after = sql.now()
    assert claim.ids == [10, 9, 8]
    assert re.fullmatch("[0-9a-f]{32}", claim.token)
    slack = timedelta(milliseconds=1)  # SQLite's clock has milliseconds
    minute = timedelta(seconds=60)
    assert before + minute - slack <= claim.lease_until <= after + minute + slack
    rows = BulkJob.objects.filter(claimed_by=claim.token)
    assert {(job.id, job.state, job.lease_until) for job in rows} == {
        (id, "running", claim.lease_until) for id in claim.ids
    }
    assert PENDING.filter(claimed_by="", lease_until=None).count() == 7


def test_nothing_free_writes_nothing() -> None:
    make(3, state="done")
    with CaptureQueriesContext(connection) as queries:
        claim = claims.claim(PENDING, limit=10, lease=60)
    assert not claim
    assert claim.ids == []
    assert len(queries) == 1
    assert queries[0]["sql"].startswith("SELECT")


def test_more_than_one_statement_can_hold() -> None:
    ids = make(1700)
    claim = claims.claim(PENDING.order_by("id"), limit=1200, lease=60)
    assert claim.ids == ids[:1200]
    rest = claims.claim(PENDING.order_by("id"), limit=1200, lease=60)
    assert rest.ids == ids[1200:]
    leases: list[Any] = list(BulkJob.objects.values_list("lease_until", flat=True))
    assert min(leases) == claim.lease_until


WORKER = """
import random, time
from msgplatform.core.data import claims
from msgplatform.jobs.models import BulkJob

def work(number):
    rng, won = random.Random(number), []
    pending = BulkJob.objects.filter(state="pending").order_by("id")
    while True:
        claim = claims.claim(pending, limit=rng.randint(1, 60), lease=600)
        if not claim:
            return won
        won.append([claim.token, claim.ids])

together(work, 12)
"""


def test_12_processes_win_every_row_and_none_twice() -> None:
    ids = make(2000)
    made = run(WORKER)
    assert all(isinstance(part, list) for part in made), made
    tokens = {token: won for part in made for token, won in part}
    everything = [id for won in tokens.values() for id in won]
    assert sorted(everything) == ids
    for token, won in tokens.items():
        assert set(BulkJob.objects.filter(claimed_by=token).values_list("id", flat=True)) == set(
            won
        )
    assert sum(1 for part in made if part) > 1  # it was a contest


IN_TRANSACTIONS = """
import random
from django.db import transaction
from msgplatform.core.data import claims, transactions
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog

class Undone(Exception):
    pass

def work(number):
    rng = random.Random(number)
    pending = BulkJob.objects.filter(state="pending").order_by("id")
    def once():
        with transaction.atomic(durable=True):
            claim = claims.claim(pending, limit=40, lease=600, changes={"state": "done"})
            AuditLog.objects.bulk_create(
                AuditLog(actor=claim.token, action="split", target=str(id)) for id in claim.ids
            )
            if rng.random() < 0.2:
                raise Undone
        return claim
    while True:
        try:
            if not transactions.retrying(once):
                return True
        except Undone:
            pass

together(work, 6)
"""


def test_a_claim_and_what_it_leads_to_in_one_transaction() -> None:
    """As the maker does it: every fifth transaction is rolled back, and leaves nothing."""
    ids = make(1000)
    assert run(IN_TRANSACTIONS) == [True] * 6
    done = AuditLog.objects.values_list("target", flat=True)
    assert sorted(map(int, done)) == ids
    assert BulkJob.objects.filter(state="done").count() == 1000


KILLED = """
from msgplatform.core.data import claims
from msgplatform.jobs.models import BulkJob
claim = claims.claim(BulkJob.objects.filter(state="pending"), limit=5, lease=0.5)
say(claim.ids)
wait()
"""


def test_what_a_killed_process_had_is_won_again_when_its_lease_is_over() -> None:
    ids = make(5)
    with child(KILLED) as process:
        assert sorted(process.heard()) == ids
        process.ready()
        process.kill()
    BulkJob.objects.update(lease_until=Now() + HOUR)
    assert not claims.claim(PENDING, limit=5, lease=60)
    BulkJob.objects.update(lease_until=Now() - HOUR)
    assert sorted(claims.claim(PENDING, limit=5, lease=60).ids) == ids


def test_a_lease_ends_by_the_clock_and_a_renewed_one_later() -> None:
    make(4)
    kept = claims.claim(PENDING.filter(id__lte=2), limit=5, lease=0.2)
    lost = claims.claim(PENDING.filter(id__gt=2), limit=5, lease=0.2)
    assert claims.renew(BulkJob, kept, 60) == 2
    until_over(lost)
    again = claims.claim(PENDING.order_by("id"), limit=5, lease=60)
    assert again.ids == [3, 4]
    # Whoever lost its rows learns it: nothing is renewed or released in another's name.
    assert claims.renew(BulkJob, lost, 60) == 0
    assert claims.release(BulkJob, lost) == 0
    assert set(BulkJob.objects.filter(claimed_by=again.token).values_list("id", flat=True)) == {
        3,
        4,
    }


def test_renewing_a_claim_moves_its_end() -> None:
    make(1100)
    claim = claims.claim(PENDING, limit=1100, lease=1)
    first = claim.lease_until
    assert claims.renew(BulkJob, claim, 60) == 1100
    assert claim.lease_until > first + timedelta(seconds=50)
    assert set(BulkJob.objects.values_list("lease_until", flat=True)) == {claim.lease_until}


def test_a_lease_that_is_over_but_not_taken_can_still_be_renewed() -> None:
    make(1)
    claim = claims.claim(PENDING, limit=1, lease=0.05)
    until_over(claim)
    assert claims.renew(BulkJob, claim, 60) == 1
    assert not claims.claim(PENDING, limit=1, lease=60)


def test_released_rows_are_free_at_once() -> None:
    make(3)
    claim = claims.claim(PENDING, limit=3, lease=600, changes={"state": "running"})
    assert claims.release(BulkJob, claim, changes={"state": "pending", "done": F("done") + 1}) == 3
    row = BulkJob.objects.order_by("id")[0]
    assert (row.claimed_by, row.lease_until, row.done) == ("", None, 1)
    assert len(claims.claim(PENDING, limit=3, lease=600).ids) == 3


# -- a column that means "due, or leased, until then" --------------------------------------------
def deliveries(*due: timedelta) -> None:
    now = sql.now()
    ReceiveMsg.objects.bulk_create(
        ReceiveMsg(
            id=n, msg_id=n, biz_id=1, biz_receive_id=1, next_at=now + when,
            created_at=now, updated_at=now,
        )
        for n, when in enumerate(due, 1)
    )  # fmt: skip


def test_due_rows_are_claimed_by_their_due_time() -> None:
    deliveries(-HOUR, HOUR, -2 * HOUR)
    due = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.PENDING).order_by("next_at")
    claim = claims.claim(
        due, limit=10, lease=60, until="next_at",
        changes={"status": ReceiveMsg.Status.QUEUED, "updated_at": Now()},
    )  # fmt: skip
    assert claim.ids == [3, 1]
    queued = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED)
    assert {row.next_at for row in queued} == {claim.lease_until}
    assert claims.renew(ReceiveMsg, claim, 120, until="next_at") == 2
    # The column cannot be NULL: released means due now, or at the time that is given.
    assert claims.release(ReceiveMsg, claim, until="next_at") == 2
    assert claims.claim(queued, limit=9, lease=60, until="next_at").ids


def test_released_for_later() -> None:
    deliveries(-HOUR)
    claim = claims.claim(ReceiveMsg.objects.all(), limit=9, lease=60, until="next_at")
    assert (
        claims.release(ReceiveMsg, claim, changes={"next_at": Now() + HOUR}, until="next_at") == 1
    )
    assert ReceiveMsg.objects.get().next_at > sql.now() + HOUR / 2


# -- what the statements look like ---------------------------------------------------------------
def test_the_whole_condition_is_repeated_when_a_row_changed_in_between() -> None:
    """Between SELECT and UPDATE somebody cancels one row and claims another."""
    make(3)

    def meddle(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("UPDATE") and not meddled:
            meddled.append(statement)
            BulkJob.objects.filter(id=1).update(state="cancelled")
            BulkJob.objects.filter(id=2).update(lease_until=Now() + HOUR, claimed_by="other")
        return execute(statement, *rest)

    meddled: list[str] = []
    with connection.execute_wrapper(meddle):
        claim = claims.claim(PENDING.order_by("id"), limit=3, lease=60)
    assert meddled
    assert claim.ids == [3]
    assert BulkJob.objects.get(id=1).claimed_by == ""
    assert BulkJob.objects.get(id=2).claimed_by == "other"


def test_a_lost_race_is_made_up_for_by_other_rows() -> None:
    make(10)

    def overtake(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("UPDATE") and not overtaken:
            overtaken.append(statement)
            BulkJob.objects.filter(id__lte=4).update(lease_until=Now() + HOUR)
        return execute(statement, *rest)

    overtaken: list[str] = []
    with connection.execute_wrapper(overtake):
        claim = claims.claim(PENDING.order_by("id"), limit=4, lease=60)
    assert claim.ids == [5, 6, 7, 8]


@pytest.mark.parametrize(
    "queryset",
    [
        ReceiveMsg.objects.filter(msg__event_type="x"),
        BulkJob.objects.filter(state="pending")[:5],
        BulkJob.objects.values("flow").annotate(n=Count("id")),
    ],
)
def test_querysets_whose_condition_an_update_cannot_repeat_are_refused(queryset: Any) -> None:
    with pytest.raises(ValueError, match=r"own table|without slice"):
        claims.claim(queryset, limit=1, lease=60)


def statements(queries: CaptureQueriesContext) -> list[str]:
    """Without the question for the name of an index, which each process asks once."""
    return [query["sql"] for query in queries if not query["sql"].startswith("PRAGMA")]


def plan(statement: str) -> str:
    """What the database says it would do."""
    with connection.cursor() as cursor:
        return " ".join(str(tuple(step.values())) for step in read_plan(cursor, statement))


def test_rows_are_changed_and_read_back_by_primary_key() -> None:
    """Also when hardly any row is in the state any more, so that the index on (state, time) looks
    better: going by it locks in another order than everybody else."""
    make(3000)
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE TABLE msgplatform_bulkjob")
            cursor.fetchall()
    with CaptureQueriesContext(connection) as queries:
        claims.claim(PENDING.order_by("id"), limit=500, lease=600)
    _, change, read_back = statements(queries)
    assert "ORDER BY" not in change
    rare = change.replace("'pending'", "'failed'")
    assert rare != change
    for statement in (change, rare, read_back):
        assert plan_is_by_primary_key(statement)


def test_a_change_of_no_rows_asks_nobody() -> None:
    """Such as the report that a queue refused an empty round."""
    with CaptureQueriesContext(connection) as queries:
        assert claims.update_by_key(BulkJob.objects.filter(pk__in=[]), {"state": "done"}) == 0
    assert not queries


def test_rows_whose_key_is_no_row_id_are_found_by_it_too() -> None:
    """SQLite's NOT INDEXED would read all of a table whose key is a BIGINT."""
    deliveries(*[-HOUR] * 600)
    due = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.PENDING)
    with CaptureQueriesContext(connection) as queries:
        claim = claims.claim_ids(due, list(range(1, 401)), lease=60, until="next_at")
    assert claim.ids == list(range(1, 401))
    assert plan_is_by_primary_key(statements(queries)[0])


def test_chosen_rows_are_claimed_only_while_they_are_free() -> None:
    deliveries(-HOUR, HOUR, -HOUR, -HOUR)
    ReceiveMsg.objects.filter(id=4).update(status=ReceiveMsg.Status.HELD)
    ReceiveMsg.objects.filter(id=3).update(send_times=7)
    due = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.PENDING)
    claim = claims.claim_ids(due, [4, 3, 2, 1, 99], lease=60, until="next_at", read=("send_times",))
    assert (claim.ids, claim.read) == ([3, 1], {3: (7,), 1: (0,)})
    assert set(ReceiveMsg.objects.filter(id__in=[1, 3]).values_list("next_at", flat=True)) == {
        claim.lease_until
    }
    assert not claims.claim_ids(due, [1, 2, 3, 4], lease=60, until="next_at")


def test_a_repeated_update_still_finds_what_it_had_won() -> None:
    """After a lost connection the UPDATE runs again and changes nothing: the token decides."""
    make(3)

    def twice(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("UPDATE"):
            execute(statement, *rest)
        return execute(statement, *rest)

    with connection.execute_wrapper(twice):
        claim = claims.claim(PENDING.order_by("id"), limit=3, lease=60)
    assert claim.ids == [1, 2, 3]


def plan_is_by_primary_key(statement: str) -> bool:
    found = plan(statement)
    if connection.vendor == "mysql":
        return any(f"'{kind}', 'PRIMARY', 'PRIMARY'" in found for kind in ("range", "const"))
    return "USING INTEGER PRIMARY KEY (rowid=?)" in found or "autoindex_receive_msg_1" in found


def test_a_caller_s_transaction_decides() -> None:
    make(3)
    with transaction.atomic():
        assert len(claims.claim(PENDING, limit=3, lease=60).ids) == 3
        transaction.set_rollback(True)
    assert BulkJob.objects.aggregate(newest=Max("lease_until"))["newest"] is None
