"""The log policy of a subscription: of which attempts the answer is kept, and for how long."""

import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from bench.harness.plans import read_plan
from msgplatform.core.connections import work_redis as redis_of_work
from msgplatform.core.data import sql
from msgplatform.models import Biz, FailureGroup
from msgplatform.monitor import failure_store
from notify.archive import retention
from notify.archive.archiver import move
from notify.archive.due import Due
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import Attempt, BizReceive, ColdAttempt, Receive
from notify.sender.sender import Sender
from tests.support import archive_support
from tests.support.archive_support import Status, archive, message
from tests.support.http_sinks import Sink, answering
from tests.support.management import Manager
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
place = archive_support.place
POLICIES = ("all", "failures", "none")


def body(policy: str, status: int) -> str:
    return f"answer-{policy}-{status}"


def in_redis() -> str:
    client: Any = redis_of_work()
    keys = [key for key in client.scan_iter() if client.type(key) == b"hash"]
    return repr([client.hgetall(key) for key in keys])


def in_tables() -> str:
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        rows = []
        for table in tables:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            rows.append(cursor.fetchall())
    return repr(rows)


def deliver(sinks: list[Sink]) -> str:
    """Send what waits, and mark it; what Redis held in between."""
    maker, sender, marker = Maker(), Sender(), Marker()
    sender.start()
    deadline = time.monotonic() + 180
    try:
        while not all(len(sink.requests) == 1 for sink in sinks):
            assert time.monotonic() < deadline, "it did not come"
            maker.turn()
            sender.turn()
    finally:
        sender.drain(time.monotonic() + 60)
        sender.stop()
    held = in_redis()
    while marker.turn():
        pass
    return held


def test_nothing_of_an_answer_is_stored_against_the_policy(
    settings: Any, admin_client: Client
) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    biz = Biz.objects.create(name="orders")
    cases = [(policy, status) for policy in POLICIES for status in (200, 500)]
    kept = {body("all", 200), body("all", 500), body("failures", 500)}
    with ExitStack() as stack:
        sinks: list[Sink] = []
        for policy, status in cases:
            text = body(policy, status)
            head = f"HTTP/1.1 {status} X\r\nX-Answer: {text}\r\nContent-Length: {len(text)}\r\n"
            sink = stack.enter_context(Sink(answering(f"{head}\r\n{text}".encode())))
            # Without a retry: a failure is exhausted, and its text is shown among the failures.
            row = subscription(biz, f"c{len(sinks)}", schedule=[], log_answers=policy)
            Receive.objects.filter(pk=row.receive_id).update(url=sink.url())
            sinks.append(sink)
        (pk,) = publish(biz)
        held = deliver(sinks)
    stored = in_tables()
    for case in cases:
        text = body(*case)
        assert (text in held, text in stored) == (text in kept, text in kept), text
    statuses = Attempt.objects.values_list("http_status", flat=True)
    assert sorted(statuses) == [200, 200, 200, 500, 500, 500]
    with translation.override("en"):
        shown = admin_client.get(f"/console/notify/{pk}").content.decode()
    assert shown.count("Not kept, by the log policy of this subscription.") == 3
    assert all(text in shown for text in kept)


def old_subscription(biz: Biz, name: str, **fields: Any) -> BizReceive:
    row = subscription(biz, name, **fields)
    BizReceive.objects.filter(pk=row.pk).update(created_at=sql.now() - timedelta(days=30))
    return row


def old_answers(row: BizReceive, text: str) -> None:
    """Messages of ten and of two days, the older one in the archive."""
    for days in (10.0, 2.0):
        message(row, Status.DELIVERED, days=days, answer=f"{text} of {days:.0f} days")


def kept_answers() -> set[str]:
    rows: list[Any] = [*Attempt.objects.all(), *ColdAttempt.objects.all()]
    assert all(bool(row.response_headers) == bool(row.response_body) for row in rows)
    return {row.response_body for row in rows} - {""}


def clean() -> int:
    """All steps; their number."""
    steps = 0
    while retention.remove_answers(sql.now()):
        steps += 1
    return steps


def test_old_answers_go_from_both_stores(
    place: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    biz = Biz.objects.create(name="orders")
    rows = {name: old_subscription(biz, name) for name in ("short", "long", "none", "always")}
    for name, row in rows.items():
        old_answers(row, name)
    everything = kept_answers()
    assert len(everything) == 8
    archive()
    assert ColdAttempt.objects.count() == Attempt.objects.count() == 4
    assert (clean(), kept_answers()) == (0, everything)

    loss = failure_store.Loss(rows["none"].pk, "HTTP 404", 1, "none of it")
    with transaction.atomic():
        failure_store.add("notify", [loss], sql.now())
    FailureGroup.objects.update(last_at=sql.now() - timedelta(days=1))
    monkeypatch.setattr(retention, "PAGE", 2)  # several steps, which share pages with others
    for name, values in (
        ("short", {"log_days": 1}), ("long", {"log_days": 5}), ("none", {"log_answers": "none"})
    ):  # fmt: skip
        BizReceive.objects.filter(pk=rows[name].pk).update(**values)
    archive()  # the program that does it
    left = {"long of 2 days", "always of 10 days", "always of 2 days"}
    assert kept_answers() == left
    assert FailureGroup.objects.get().said == ""
    assert Attempt.objects.count() + ColdAttempt.objects.count() == 8
    with CaptureQueriesContext(connection) as captured:
        assert clean() == 0
    assert all(q["sql"].startswith("SELECT") for q in captured), "an idle step writes nothing"

    # A policy that comes later finds what is there; one that becomes longer brings nothing back.
    BizReceive.objects.filter(pk=rows["always"].pk).update(log_days=5)
    BizReceive.objects.filter(pk=rows["short"].pk).update(log_days=100)
    assert clean() > 0
    assert kept_answers() == {"long of 2 days", "always of 2 days"}


def test_an_attempt_that_moves_meanwhile_is_not_missed(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = old_subscription(Biz.objects.create(name="orders"), "shop", log_days=5)
    pk = message(row, Status.DELIVERED, days=10)
    read_page = retention._page

    def read_and_move(store: Any, start: int, end: int) -> Any:
        page = read_page(store, start, end)
        if store.cold:  # both stores are read: the attempt was in the hot one
            move([pk], Due.at(sql.now()))
        return page

    monkeypatch.setattr(retention, "_page", read_and_move)
    clean()
    assert ColdAttempt.objects.count() == 1
    assert kept_answers() == set()


def test_a_new_subscription_reads_no_older_attempts() -> None:
    biz = Biz.objects.create(name="orders")
    old_answers(old_subscription(biz, "other"), "other")
    new = subscription(biz, "new", log_days=1)
    assert clean() == 0
    BizReceive.objects.filter(pk=new.pk).update(created_at=sql.now() - timedelta(days=4))
    message(new, Status.DELIVERED, days=2, answer="new")
    assert (clean(), kept_answers()) == (1, {"other of 10 days", "other of 2 days"})


def test_a_step_reads_by_the_primary_key() -> None:
    row = old_subscription(Biz.objects.create(name="orders"), "shop", log_days=5)
    for _ in range(30):
        message(row, Status.DELIVERED, days=10)
    with CaptureQueriesContext(connection) as captured:
        assert clean() == 1
    statements = [q["sql"] for q in captured if "attempt" in q["sql"] and "SELECT" in q["sql"]]
    assert len(statements) == 2, statements  # a page of each store
    with connection.cursor() as cursor:
        for statement in statements:
            for step in read_plan(cursor, statement):
                if connection.vendor == "sqlite":
                    assert "SEARCH" in step["detail"], step
                else:
                    assert (step["key"], "filesort" in (step["Extra"] or "")) == ("PRIMARY", False)


def test_the_api_sets_it_and_names_wrong_values() -> None:
    manager = Manager()
    manager.send("PUT", "systems/orders", {})
    manager.send("PUT", "consumers/warehouse", {"url": "https://a.example/"})
    address = "subscriptions/orders/warehouse"
    shown = manager.send("PUT", address, {"log_answers": "failures", "log_days": 30}).json()
    assert (shown["log_answers"], shown["log_days"]) == ("failures", 30)
    shown = manager.send("PUT", address, {}).json()
    assert (shown["log_answers"], shown["log_days"]) == ("all", None)
    for wrong in ({"log_answers": "some"}, {"log_days": 0}, {"log_days": 4000}):
        answer = manager.send("PUT", address, wrong)
        assert answer.status_code == 400, answer.content
        assert [each["field"] for each in answer.json()["errors"]] == list(wrong)


def test_the_form_has_it(admin_client: Client) -> None:
    row = subscription(Biz.objects.create(name="orders"))
    with translation.override("en"):
        shown = admin_client.get(f"/admin/notify/bizreceive/{row.pk}/change/").content.decode()
    assert "Log of attempts" in shown
    assert "of failed attempts only" in shown
