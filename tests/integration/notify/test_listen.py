"""Consumers for development: a listener fetches their deliveries, one after the other."""

import base64
import hashlib
import hmac
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db.models import F
from django.db.models.functions import Now

from msgplatform.core.data import ids, sql
from msgplatform.core.web import long_polls
from msgplatform.doors.api.access import keys, throttling
from msgplatform.models import Alert, Biz, FailureGroup, MinuteCounter
from msgplatform.monitor.watch import of_flows
from notify import directory
from notify.listening import leases
from notify.maker import expiry
from notify.maker.maker import Maker
from notify.models import Attempt, BizMsg, BizReceive, Receive, ReceiveMsg
from notify.monitor import conditions, metrics
from notify.sender.trial_send import send as trial_send
from notify.subscriptions import limits
from tests.integration.notify.api_caller import Caller
from tests.support import table_rows, threads
from tests.support.answers import Answer
from tests.support.api_support import problem
from tests.support.forms import form_class
from tests.support.management import Manager
from tests.support.notify_plans import rows_read
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Status = ReceiveMsg.Status
LISTEN = "/api/v1/consumers/laptop/listen"
SOON = 60.0


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    # The thread that wakes waiting requests is the web server's: see test_listen_server.
    monkeypatch.setattr(leases.WATCH, "ensure_started", lambda: None)
    keys.forget()


class Laptop(Caller):
    """A business system with a consumer for development, and its listener."""

    def __init__(self, schedule: list[int] | None = None, **fields: Any) -> None:
        super().__init__("orders", "events:listen")
        self.consumer = Receive.objects.create(name="laptop", delivery="listen", **fields)
        self.row = subscription(self.biz, "laptop", schedule)
        self.listener = "anna"

    def make(self, count: int = 1, **event: Any) -> list[int]:
        """Publish so many events and split them; the ids of the messages."""
        messages = publish(self.biz, count, **event)
        make()
        return messages

    def ask(self, listener: str = "", **more: Any) -> Answer:
        return self.post(LISTEN, {"listener": listener or self.listener, **more})

    def next(self, listener: str = "", **more: Any) -> Any:
        answer = self.ask(listener, **more)
        assert answer.status_code == 200, answer.content
        assert answer.has_header(long_polls.HEADER) == (answer.json()["delivery"] is None)
        return answer.json()["delivery"]

    def result(self, delivery: Any, status: int = 200, **more: Any) -> Answer:
        body = {"claim": delivery["claim"], "status": status, **more}
        return self.post(f"{LISTEN}/{delivery['id']}", body)

    def finish(self, delivery: Any, status: int = 200, **more: Any) -> Any:
        answer = self.result(delivery, status, **more)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def stored(self, delivery: Any) -> ReceiveMsg:
        return ReceiveMsg.objects.get(pk=int(delivery["id"]))


def make() -> None:
    maker = Maker()
    while maker.turn():
        pass


def end_leases() -> None:
    ReceiveMsg.objects.filter(status=Status.QUEUED).update(next_at=Now() - timedelta(seconds=1))


@pytest.fixture
def laptop() -> Laptop:
    return Laptop()


# -- order ---------------------------------------------------------------------------------------
def test_they_come_one_after_the_other_in_their_order(laptop: Laptop) -> None:
    messages = laptop.make(3)
    got = []
    for _ in messages:
        delivery = laptop.next()
        # The next one is not out before this one's result.
        assert laptop.next()["id"] == delivery["id"]
        delivery = laptop.next()
        got.append(int(delivery["message_id"]))
        assert laptop.finish(delivery) == {
            "outcome": "delivered", "attempt": 1, "next_attempt_at": None
        }  # fmt: skip
    assert got == messages
    assert laptop.next() is None
    assert set(ReceiveMsg.objects.values_list("status", flat=True)) == {Status.DELIVERED}


def test_a_lost_delivery_comes_first_again(laptop: Laptop) -> None:
    messages = laptop.make(2)
    lost = laptop.next()
    laptop.make(1)
    end_leases()
    again = laptop.next()
    assert (again["id"], again["attempt"]) == (lost["id"], 1)
    assert again["claim"] != lost["claim"]
    laptop.finish(again)
    assert int(laptop.next()["message_id"]) == messages[1]


def test_a_retry_holds_up_no_other(laptop: Laptop) -> None:
    first, second = laptop.make(2)
    delivery = laptop.next()
    outcome = laptop.finish(delivery, 500)
    assert (outcome["outcome"], outcome["attempt"]) == ("failed", 1)
    assert outcome["next_attempt_at"]
    assert int(laptop.next()["message_id"]) == second
    laptop.finish(laptop.next())
    assert laptop.next() is None
    ReceiveMsg.objects.filter(status=Status.PENDING).update(next_at=Now())
    again = laptop.next()
    assert (int(again["message_id"]), again["attempt"]) == (first, 2)


# -- the request ---------------------------------------------------------------------------------
def test_the_request_is_that_of_a_sender() -> None:
    laptop = Laptop(headers={"X-Api-Key": "k"}, header_prefix="acme")
    laptop.make(payload='{ "名" : 1.00 }'.encode())
    delivery = laptop.next()
    request, headers = delivery["request"], delivery["request"]["headers"]
    assert request["method"] == "POST"
    assert request["body"].endswith('"data":{ "名" : 1.00 }}')
    assert headers["acme-id"] == delivery["message_id"]
    assert (headers["content-type"], headers["X-Api-Key"]) == ("application/json", "k")
    signed = f"{headers['acme-id']}.{headers['acme-timestamp']}.{request['body']}".encode()
    secret = base64.b64decode(laptop.consumer.secret.removeprefix("whsec_"))
    digest = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
    assert headers["acme-signature"] == f"v1,{digest}"
    assert delivery["timeout"] == directory.from_row(laptop.row).timeout


def test_the_request_has_the_format_of_the_subscription(laptop: Laptop) -> None:
    BizReceive.objects.update(format="cloudevents-binary")
    laptop.make(payload=b'{"n":1}')
    request = laptop.next()["request"]
    assert request["body"] == '{"n":1}'
    assert request["headers"]["ce-type"] == "order.paid"


# -- fencing -------------------------------------------------------------------------------------
def test_a_late_result_is_refused(laptop: Laptop) -> None:
    laptop.make()
    late = laptop.next("anna")
    current = laptop.next("bob", take_over=True)
    assert current["id"] == late["id"]
    for status in (200, 500):
        problem(laptop.result(late, status), 409, "lease-lost")
    row = laptop.stored(current)
    assert (row.status, row.claimed_by, row.send_times) == (Status.QUEUED, current["claim"], 0)
    assert not Attempt.objects.exists()
    assert laptop.finish(current)["outcome"] == "delivered"
    detail = problem(laptop.result(late), 409, "lease-lost")["detail"]
    assert detail.startswith("This lease has passed on")


def test_a_result_after_the_lease_counts_while_nobody_else_has_it(laptop: Laptop) -> None:
    laptop.make()
    delivery = laptop.next()
    end_leases()
    assert laptop.finish(delivery)["outcome"] == "delivered"


def test_a_result_that_comes_twice_counts_once(laptop: Laptop) -> None:
    laptop.make(2)
    for status, outcome in ((204, "delivered"), (500, "failed")):
        delivery = laptop.next()
        first, again = laptop.finish(delivery, status), laptop.finish(delivery, status)
        assert first == again
        assert first["outcome"] == outcome
    assert Attempt.objects.count() == 2


# -- results -------------------------------------------------------------------------------------
def test_it_is_exhausted_by_its_schedule_and_calls_nobody() -> None:
    laptop = Laptop(schedule=[1, 1])
    laptop.make()
    for attempt in (1, 2, 3):
        ReceiveMsg.objects.update(next_at=Now())
        delivery = laptop.next()
        outcome = laptop.finish(
            delivery, 503, seconds=0.25, headers={"Server": "dev", "Set-Cookie": "x"}, body="no"
        )
        assert outcome["attempt"] == delivery["attempt"] == attempt
    assert (outcome["outcome"], outcome["next_attempt_at"]) == ("exhausted", None)
    assert laptop.stored(delivery).status == Status.EXHAUSTED
    group = FailureGroup.objects.get()
    assert (group.subject, group.count) == (laptop.row.pk, 1)
    counted = MinuteCounter.objects.filter(subject=laptop.row.pk)
    assert sum(counted.filter(name="failed").values_list("value", flat=True)) == 3
    attempt_row = Attempt.objects.order_by("number").first()
    assert attempt_row
    assert (attempt_row.http_status, attempt_row.seconds) == (503, 0.25)
    assert (attempt_row.response_body, "dev" in attempt_row.response_headers) == ("no", True)
    assert "Cookie" not in attempt_row.response_headers
    laptop.row.refresh_from_db()
    assert (laptop.row.failures, laptop.row.failing_since) == (0, None)
    assert not list(conditions.conditions())
    of_flows.report_failures()
    assert not Alert.objects.exists()


def test_an_answer_410_ends_like_any_other() -> None:
    laptop = Laptop(schedule=[])
    laptop.make()
    assert laptop.finish(laptop.next(), 410)["outcome"] == "exhausted"
    laptop.row.refresh_from_db()
    assert laptop.row.status == BizReceive.Status.NORMAL


def test_without_an_answer_the_error_is_kept(laptop: Laptop) -> None:
    laptop.make()
    laptop.finish(laptop.next(), 0, error="connect", detail="Connection refused")
    attempt = Attempt.objects.get()
    assert (attempt.http_status, attempt.error, attempt.detail) == (
        0, "connect", "Connection refused"
    )  # fmt: skip


@pytest.mark.parametrize("charset", ["gbk", "ISO-8859-1", "utf-7", "utf-16"])
def test_the_text_of_an_answer_stays_whatever_its_charset_was(laptop: Laptop, charset: str) -> None:
    laptop.make()
    headers = {"content-type": f"text/html; charset={charset}"}
    laptop.finish(laptop.next(), 500, headers=headers, body="系统错误: Größe +2AE-")
    attempt = Attempt.objects.get()
    assert attempt.response_body == "系统错误: Größe +2AE-"
    assert headers["content-type"] in attempt.response_headers


def test_the_log_policy_holds(laptop: Laptop) -> None:
    BizReceive.objects.update(log_answers=limits.KeptAnswers.FAILURES)
    laptop.make(2)
    for status in (200, 500):
        laptop.finish(laptop.next(), status, body=f"an answer with {status}")
    rows = Attempt.objects.values_list("http_status", "response_body")
    assert sorted(rows) == [(200, ""), (500, "an answer with 500")]


def test_a_wrong_result_is_refused(laptop: Laptop) -> None:
    laptop.make()
    delivery = laptop.next()
    for name, body in (
        ("error", {"status": 0}),
        ("status", {"status": 99}),
        ("status", {"status": 600}),
        ("claim", {"status": 200, "claim": "x"}),
        ("error", {"status": 0, "error": "tired"}),
        ("seconds", {"status": 200, "seconds": -1}),
        ("headers", {"status": 200, "headers": {"a": "b\r\nc: d"}}),
        ("headers", {"status": 200, "headers": {"a": "b" * 9000}}),
        ("detail", {"status": 200, "detail": "d" * 301}),
    ):
        answer = laptop.post(f"{LISTEN}/{delivery['id']}", {"claim": delivery["claim"], **body})
        (error,) = problem(answer, 400, "invalid-input")["errors"]
        assert error["field"] == name
    assert laptop.stored(delivery).status == Status.QUEUED


def test_a_message_that_is_gone_is_set_aside(laptop: Laptop) -> None:
    first, second = laptop.make(2)
    BizMsg.objects.filter(pk=first).delete()
    assert int(laptop.next()["message_id"]) == second
    assert ReceiveMsg.objects.get(msg_id=first).status == Status.POISON


# -- who may -------------------------------------------------------------------------------------
def test_a_stranger_learns_nothing(laptop: Laptop) -> None:
    laptop.make()
    delivery = laptop.next()
    stranger = Caller("stranger", "events:listen")
    body = {"listener": "eve", "take_over": True}
    refused = [
        stranger.post(LISTEN, body),
        stranger.post("/api/v1/consumers/nobody/listen", body),
        stranger.post(f"{LISTEN}/{delivery['id']}", {"claim": delivery["claim"], "status": 200}),
    ]
    for answer in refused:
        problem(answer, 404, "not-found")
    assert len({answer.content for answer in refused}) == 1
    # With a subscription of its own to the same consumer it gets its own events, and no others.
    subscription(stranger.biz, "laptop")
    assert stranger.post(LISTEN, body).json()["delivery"] is None
    result = {"claim": delivery["claim"], "status": 200}
    problem(stranger.post(f"{LISTEN}/{delivery['id']}", result), 404, "not-found")
    assert laptop.finish(delivery)["outcome"] == "delivered"


def test_a_key_needs_the_scope(laptop: Laptop) -> None:
    laptop.make()
    plain = keys.create(laptop.biz, "no listener", ["events:read", "events:write"])[1]
    laptop.key, own = plain, laptop.key
    problem(laptop.ask(), 403, "missing-scope")
    problem(laptop.post(f"{LISTEN}/1", {}), 403, "missing-scope")
    laptop.key = Manager().plain
    problem(laptop.ask(), 403, "missing-scope")
    laptop.key = own
    assert laptop.next()


def test_a_listener_has_a_name(laptop: Laptop) -> None:
    for listener in ("", "a b", "x" * 65, "é"):
        answer = laptop.post(LISTEN, {"listener": listener})
        (error,) = problem(answer, 400, "invalid-input")["errors"]
        assert error["field"] == "listener"


def test_one_listener_at_a_time(laptop: Laptop) -> None:
    assert laptop.next("anna") is None
    answer = laptop.ask("bob")
    detail = problem(answer, 409, "already-listening")["detail"]
    assert detail.startswith("Another listener gets its deliveries.")
    assert 0 < int(answer["Retry-After"]) <= long_polls.SECONDS + 11
    laptop.make()
    # One that is asked again while it waits, as the server does, does not take the place back.
    assert laptop.next("bob", take_over=True)
    laptop.client.defaults[long_polls.HAS_WAITED] = "1"
    waited = laptop.ask("anna", take_over=True)
    del laptop.client.defaults[long_polls.HAS_WAITED]
    problem(waited, 409, "already-listening")
    problem(laptop.ask("anna"), 409, "already-listening")


def test_a_flush_of_redis_loses_nothing(laptop: Laptop, work_redis: Any) -> None:
    laptop.make()
    first = laptop.next("anna")
    work_redis.flushall()
    second = laptop.next("bob")
    assert second["id"] == first["id"]
    problem(laptop.result(first), 409, "lease-lost")
    laptop.finish(second)


# -- the watch -----------------------------------------------------------------------------------
class Observed(leases.Watch):
    """A watch that sets an event after each look."""

    def __init__(self) -> None:
        super().__init__()
        self.has_looked = threading.Event()

    def _turn(self) -> float:
        pause = super()._turn()
        self.has_looked.set()
        return pause

    def stop(self) -> None:
        assert self._loop
        self._loop.stop(SOON)


def test_a_request_that_waits_after_the_watch_has_looked_is_woken(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A retry that is due sends no signal.
    monkeypatch.setattr(leases, "Listener", lambda *_: SimpleNamespace(start=lambda: None))
    waiting = long_polls.Waiting()
    monkeypatch.setattr(leases, "WAITING", waiting)
    laptop.make()
    observed, is_woken = Observed(), threading.Event()
    with threads.refusing("listeners"), pytest.raises(RuntimeError, match="new thread"):
        observed.ensure_started()
    observed.ensure_started()
    try:
        assert observed.has_looked.wait(SOON)
        waiting.add(leases.topic(laptop.row.pk), lambda _is_replaced: is_woken.set())
        assert is_woken.wait(SOON)
    finally:
        observed.stop()


# -- the rest of the platform --------------------------------------------------------------------
def test_a_maker_queues_nothing_for_it(laptop: Laptop, work_redis: Any) -> None:
    laptop.make(2)
    assert laptop.stored(laptop.next()).claimed_by.startswith("listen-")
    end_leases()
    make()
    assert not work_redis.keys("rq:queue:notify-*")
    assert metrics.longest_waits(metrics.read_waiting(), sql.now()) == []


def test_it_goes_on_the_other_way_after_a_switch(laptop: Laptop, work_redis: Any) -> None:
    manager = Manager("manage:consumers")
    out, *_others = laptop.make(3)
    held = laptop.next()
    answer = manager.send("PUT", "consumers/laptop", {"url": "http://127.0.0.1:9/laptop"})
    assert answer.status_code == 200
    problem(laptop.ask(), 409, "not-now")
    make()
    statuses = ReceiveMsg.objects.order_by("msg_id").values_list("status", "claimed_by")
    assert [status for status, _ in statuses] == [Status.QUEUED] * 3
    # The one that is out is the listener's, until its result or the end of its lease.
    assert [claim for _, claim in statuses].count(held["claim"]) == 1
    assert laptop.finish(held)["outcome"] == "delivered"
    # And back: what senders have is not given to the listener before its lease is over.
    assert manager.send("PUT", "consumers/laptop", {"delivery": "listen"}).status_code == 200
    work_redis.flushall()
    laptop.make(1)
    assert laptop.next() is None
    end_leases()
    got = []
    while delivery := laptop.next():
        got.append(int(delivery["message_id"]))
        laptop.finish(delivery)
    assert got == sorted(got)
    assert len(got) == 3
    assert out not in got


def test_nothing_comes_while_it_is_paused(laptop: Laptop) -> None:
    BizReceive.objects.update(status=BizReceive.Status.PAUSED)
    laptop.make()
    assert laptop.ask().json() == {
        "delivery": None, "subscription": "orders/laptop", "status": "paused"
    }  # fmt: skip
    BizReceive.objects.update(status=BizReceive.Status.NORMAL)
    make()
    assert laptop.next()


def test_it_is_not_kept_for_ever(laptop: Laptop) -> None:
    _old, new = laptop.make(2)
    settings = directory.from_row(laptop.row)
    days = timedelta(days=3, minutes=1)
    ReceiveMsg.objects.exclude(msg_id=new).update(next_at=F("next_at") - days)
    assert expiry.expire_unfetched([settings]) == 1
    row = ReceiveMsg.objects.exclude(msg_id=new).get()
    assert (row.status, row.error) == (Status.SKIPPED, expiry.UNFETCHED)
    assert int(laptop.next()["message_id"]) == new
    assert not FailureGroup.objects.exists()


def test_after_a_standstill_it_is_kept_for_some_hours(laptop: Laptop) -> None:
    """The platform was off over a long weekend."""
    laptop.make()
    ReceiveMsg.objects.update(next_at=F("next_at") - timedelta(days=4))
    maker = Maker()
    maker.turn()
    assert ReceiveMsg.objects.get().status == Status.PENDING
    maker.continuity.since -= expiry.MIN_LISTEN_SECONDS
    maker.turn()
    assert ReceiveMsg.objects.get().status == Status.SKIPPED


def test_there_is_no_address_to_test(laptop: Laptop) -> None:
    with pytest.raises(ValueError, match="listener"):
        trial_send(laptop.row)


def test_a_long_backlog_costs_no_more(laptop: Laptop) -> None:
    """In rows that MariaDB reads; SQLite does not count them."""
    number = 3000
    made = ids.reserve(number + 1).ids([0] * (number + 1))
    common = {"biz_id": laptop.biz.pk, "created_at": sql.now()}
    BizMsg.objects.create(id=made[0], event_type="order.paid", payload=b"{}", state=1, **common)
    table_rows.insert_like(
        ReceiveMsg(
            msg_id=made[0], biz_receive_id=laptop.row.pk, status=Status.PENDING, next_at=sql.now(),
            updated_at=sql.now(), **common,
        ),
        ("id", "msg_id"),
        ((pk, made[0] if n == 0 else pk) for n, pk in enumerate(made[1:])),
    )  # fmt: skip
    laptop.next()
    before = rows_read()
    assert laptop.next()
    assert rows_read() - before < 200


# -- setting it up -------------------------------------------------------------------------------
def test_a_consumer_has_an_address_or_a_listener() -> None:
    manager = Manager("manage:consumers")
    created = manager.send("PUT", "consumers/laptop", {"delivery": "listen"})
    assert created.status_code == 201
    assert (created.json()["delivery"], created.json()["url"]) == ("listen", "")
    url = {"url": "https://laptop.example/"}
    for body in ({}, {"delivery": "push"}, {"delivery": "listen", **url}):
        (error,) = problem(manager.send("PUT", "consumers/laptop", body), 400, "invalid-input")[
            "errors"
        ]
        assert error["field"] == "url"
    problem(manager.send("PUT", "consumers/laptop", {"delivery": "x", **url}), 400, "invalid-input")


def test_stored_headers_do_not_go_to_a_listener() -> None:
    manager = Manager("manage:consumers")
    body = {"url": "https://laptop.example/", "headers": {"X-Api-Key": "k"}}
    manager.send("PUT", "consumers/laptop", body)
    answer = manager.send("PUT", "consumers/laptop", {"delivery": "listen"})
    (error,) = problem(answer, 400, "invalid-input")["errors"]
    assert error["field"] == "headers"
    answer = manager.send("PUT", "consumers/laptop", {"delivery": "listen", "headers": {}})
    assert answer.status_code == 200


def test_the_form_knows_it() -> None:
    def errors(**fields: str) -> set[str]:
        form = form_class(Receive)({"name": "laptop", "header_prefix": "webhook", **fields})
        return set(form.errors)

    assert errors(delivery="listen") == set()
    assert errors(delivery="listen", url="https://a.example/") == {"url"}
    assert errors(delivery="push") == {"url"}
    with pytest.raises(ValidationError):
        Receive(name="laptop").full_clean()


def test_the_system_of_the_key_says_which(laptop: Laptop) -> None:
    other = Biz.objects.create(name="stock")
    subscription(other, "laptop")
    publish(other)
    make()
    assert laptop.next() is None
