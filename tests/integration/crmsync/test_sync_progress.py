"""How far a run is, from the sums of its operations."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from crmsync.models import Operation, Policy, Run
from crmsync.models.sources import MAX_UNREAD
from crmsync.monitor import backlog
from msgplatform.core.data import ids, sql

pytestmark = pytest.mark.django_db
READING, READ, FAILED = Run.State


def new_run(**fields: Any) -> Run:
    """One that began long ago: the seconds of a test are few beside that."""
    began = sql.now() - timedelta(seconds=1000)
    fields = {"policy_id": 1, "kind": Policy.Kind.FULL, "started_at": began, **fields}
    return Run.objects.create(id=ids.new(0), **fields)


def operation(run: Run, records: int, confirmed: int = 0, **ended: int) -> None:
    Operation.objects.create(
        id=ids.new(0), data=b"[]", start_at=0, policy_id=1, run_id=run.pk, records=records,
        confirmed=confirmed, **ended,
    )  # fmt: skip


def test_a_run_that_reads() -> None:
    run = new_run(read=60, unchanged=10, unread=200)
    operation(run, 30, confirmed=20, replaced=3, dead=2)
    operation(run, 20, confirmed=5)
    found = backlog.of_runs([run])[run.pk]
    counts = (found.sent, found.confirmed, found.replaced, found.dead, found.waiting)
    assert counts == (50, 25, 3, 2, 20)
    assert (found.read, found.unchanged, found.is_over) == (60, 10, False)
    # 40 of 200 in about a thousand seconds.
    assert found.rate == pytest.approx(0.04, rel=0.2)
    assert found.left == pytest.approx(160 / found.rate)


def test_everything_is_read_and_not_yet_sent() -> None:
    run = new_run(state=READ, read=60, unchanged=10, unread=40)
    operation(run, 50, confirmed=40)
    found = backlog.of_runs([run])[run.pk]
    assert not found.is_over
    assert found.left == pytest.approx(10 / (found.rate or 0))


def test_nothing_is_known_of_the_time_before_anything_was_done_and_beyond_what_lay_before_it() -> (
    None
):
    none_done = new_run(unread=100)
    beyond = new_run(read=120, unchanged=120, unread=100)
    endless = new_run(read=120, unchanged=120, unread=MAX_UNREAD)
    found = backlog.of_runs([none_done, beyond, endless])
    assert found[endless.pk].left is None
    assert (found[none_done.pk].rate, found[none_done.pk].left) == (0.0, None)
    assert found[beyond.pk].rate
    assert found[beyond.pk].left is None


@pytest.mark.parametrize("state", [READ, FAILED])
def test_a_run_that_is_over_has_no_rate(state: int) -> None:
    run = new_run(state=state, read=5)
    operation(run, 5, confirmed=4, dead=1)
    found = backlog.of_runs([run])[run.pk]
    assert (found.is_over, found.rate, found.left) == (True, None, None)


def test_an_answer_adds_up_a_bounded_number_of_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_OPERATIONS", 3)
    old, new = new_run(state=READ), new_run(state=READ)
    for _ in range(2):
        operation(old, 10, confirmed=10)
        operation(new, 10, confirmed=10)
    found = backlog.of_runs([old, new])
    assert (found[new.pk].confirmed, found[new.pk].partly) == (20, False)
    assert found[old.pk].partly


def test_many_runs_cost_as_many_queries_as_one() -> None:
    costs = []
    for count in (1, 20):
        runs = [new_run() for _ in range(count)]
        for run in runs:
            operation(run, 1)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert len(backlog.of_runs(runs)) == count
        costs.append(len(queries))
    assert costs == [2, 2]
