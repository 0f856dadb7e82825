"""The counts of failures: exact, and in doubt too high."""

import threading
from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction

from bench.harness.plans import read_plan
from msgplatform.core.data import sql, transactions
from msgplatform.models import Acknowledgement, FailureGroup
from msgplatform.monitor import failure_groups, failure_store
from msgplatform.monitor.failure_groups import GroupSnapshot
from msgplatform.monitor.failure_store import Loss, Rescue
from tests.support.failure_times import tick

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
FLOW, WHERE, ANSWER = "notify", 7, "HTTP 503"


def lose(number: int, answer: str = ANSWER, where: int = WHERE, said: str = "") -> datetime:
    """When they ended."""
    now = tick()
    tick()
    with transaction.atomic():
        failure_store.add(FLOW, [Loss(where, answer, n, said) for n in range(1, number + 1)], now)
    return now


def send_again(number: int, ended_at: datetime, answer: str = ANSWER) -> None:
    with transaction.atomic():
        failure_store.take_back(FLOW, [Rescue(WHERE, answer, ended_at)] * number)


def group(answer: str = ANSWER) -> FailureGroup:
    return FailureGroup.objects.get(subject=WHERE, answer=answer)


def seen() -> GroupSnapshot:
    row = group()
    return GroupSnapshot(row.pk, row.lost, row.last_at)


def acknowledge(what: GroupSnapshot) -> int:
    return failure_groups.acknowledge(what, "orders → till", ANSWER, "known", "ann")


def test_one_statement_counts_a_batch(django_assert_num_queries: object) -> None:
    now = sql.now()
    lost = [
        Loss(WHERE, ANSWER, 1),
        Loss(WHERE, "timeout", 2),
        Loss(8, ANSWER, 3, "no"),
    ] * 3
    with django_assert_num_queries(1):  # type: ignore[operator]
        failure_store.add(FLOW, lost, now)
        failure_store.add(FLOW, [], now)
    failure_store.add(FLOW, lost[:1], now)
    found = {
        (g.subject, g.answer): (g.count, g.lost, g.said) for g in failure_groups.open_groups(FLOW)
    }
    assert found == {
        (WHERE, ANSWER): (4, 4, ""), (WHERE, "timeout"): (3, 3, ""), (8, ANSWER): (3, 3, "no"),
    }  # fmt: skip
    assert failure_groups.open_groups(FLOW)[0].count == 4, "the largest first"
    assert failure_groups.open_groups("sms") == []
    assert (failure_groups.count_groups([FLOW]), failure_groups.count_groups(["sms"])) == (3, 0)


def test_since_is_the_first_that_counts() -> None:
    first = lose(1)
    last = lose(1)
    assert group().since == first
    assert group().last_at >= last > first
    send_again(2, last)
    assert group().count == 0
    anew = lose(1)
    assert group().since == anew, "all before it were sent again"


def test_what_is_sent_again_leaves_the_count() -> None:
    at = lose(5)
    send_again(2, lose(2, "timeout"), "timeout")
    send_again(3, at)
    send_again(1, at, "of an answer that nobody counted")
    assert [(g.answer, g.count) for g in failure_groups.open_groups(FLOW)] == [(ANSWER, 2)]
    send_again(9, at)
    assert group().count == 0, "never below none"


def test_what_ended_before_anything_was_counted_takes_nothing_away() -> None:
    before = sql.now() - timedelta(seconds=1)
    lose(3)
    send_again(3, before)
    assert group().count == 3


def test_acknowledged_is_what_was_seen_and_no_more() -> None:
    lose(5)
    shown = seen()
    later = lose(2)
    assert acknowledge(shown) == 5
    assert group().count == 2, "these came after the page was shown"
    assert group().since >= shown.until
    assert acknowledge(shown) == 0, "somebody else had pressed it, too"
    assert group().count == 2
    row = Acknowledgement.objects.get()
    assert (row.count, row.note, row.actor, row.until) == (5, "known", "ann", shown.until)
    send_again(2, later)
    assert failure_groups.open_groups(FLOW) == []


def test_sending_acknowledged_ones_again_hides_no_others() -> None:
    at = lose(5)
    acknowledge(seen())
    later = lose(2)
    assert group().count == 2, "new losses list it again"
    send_again(5, at)
    assert group().count == 2
    send_again(1, later)
    assert group().count == 1


def test_what_ended_as_the_last_that_was_seen_is_acknowledged_too() -> None:
    """They end in the transaction that counts them: by a clock of milliseconds at the same time."""
    lose(5)
    ended_at = group().last_at
    assert acknowledge(seen()) == 5
    later = lose(2)
    send_again(5, ended_at)
    assert group().count == 2, "these were in no count any more"
    send_again(2, later)
    assert failure_groups.open_groups(FLOW) == []


def test_acknowledged_after_some_were_sent_again() -> None:
    at = lose(5)
    shown = seen()
    send_again(3, at)
    lose(1)
    assert acknowledge(shown) == 2
    assert group().count == 1


def test_a_rollback_leaves_nothing() -> None:
    now = sql.now()
    with transaction.atomic():
        failure_store.add(FLOW, [Loss(WHERE, ANSWER, 1)], now)
        transaction.set_rollback(True)
    assert failure_groups.count_groups([FLOW]) == 0


def test_any_answer_can_be_kept() -> None:
    lose(1, said="\x00\ud800 no\r\n" + "消息🙂" * 400)
    assert group().said.startswith("no")
    assert len(group().said) == 300
    lose(1, answer="x" * 90)
    assert FailureGroup.objects.filter(answer="x" * 64).exists()


def test_several_at_once_neither_lose_a_count_nor_deadlock() -> None:
    def work() -> None:
        try:
            for turn in range(15):
                at = transactions.retrying(lambda: lose(2))
                transactions.retrying(lambda: lose(1, "timeout"))
                if turn % 3 == 0:
                    transactions.retrying(lambda: send_again(1, at))  # noqa: B023
        except Exception as error:
            wrong.append(error)
        finally:
            connection.close()

    wrong: list[Exception] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert group().lost == 4 * 30
    assert group("timeout").count == 4 * 15
    # A message that another thread's first batch counted since may be taken for older: too high.
    assert 4 * 25 <= group().count <= 4 * 30


def test_those_that_nobody_waits_for_cost_nothing() -> None:
    """Groups stay after they were sent again: a thousand subscriptions with ten answers each."""
    now = sql.now()
    FailureGroup.objects.bulk_create(
        FailureGroup(
            flow=FLOW, subject=number // 10, answer=f"HTTP {number % 10}", count=0, lost=1,
            since=now, last_at=now, sample=1, counted_since=now,
        )
        for number in range(10_000)
    )  # fmt: skip
    lose(2, where=20_000)
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("ANALYZE TABLE msgplatform_givenup")
            cursor.fetchall()
        for rows in (
            FailureGroup.objects.filter(flow=FLOW, count__gt=0).order_by("-count")[:200],
            FailureGroup.objects.filter(flow__in=["notify", "sms"], count__gt=0).values("flow")[
                :100
            ],
        ):
            statement, parameters = rows.query.sql_with_params()
            (step,) = read_plan(cursor, statement, parameters)
            assert "givenup_open" in str(step), step
            assert int(step.get("rows", 1)) < 1000, step
    assert [group.count for group in failure_groups.open_groups(FLOW)] == [2]
