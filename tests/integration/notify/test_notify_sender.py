"""Sender: nobody waits for somebody else's consumer; limits, breaker and sharing."""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest
import standardwebhooks
from django.conf import LazySettings
from django.core.management import CommandError
from django.db import connection

from demo.sink_process import SinkProcess
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.queues import jobs as queues, owners
from msgplatform.core.queues.owners import OWNER
from msgplatform.core.rates import breaker
from msgplatform.models import Alert, Biz
from notify import orders, presence, signals
from notify.directory import Subscriptions
from notify.maker.capacity import Capacity
from notify.management.commands import run_sender
from notify.models import BizReceive, Receive
from notify.orders import Item, Order, Result
from notify.sender import in_flight
from notify.sender.claimer import OrderClaimer
from notify.sender.in_flight import ClaimedOrder, patience
from notify.sender.sender import Sender
from tests.support.http_sinks import Sink, answering, refusing_port
from tests.support.suspension import suspend

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

HANGS = 300.0  # seconds
QUICK = breaker.Policy(failures_in_a_row=3, first=0.5, jitter=0.0)
SLOW_TO_PROBE = breaker.Policy(failures_in_a_row=3, first=3600, cap=3600, jitter=0.0)


@pytest.fixture(autouse=True)
def _loopback(settings: LazySettings) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is taken for dead because this machine stood still for some seconds."""
    monkeypatch.setattr("notify.sender.claimer.OWNERSHIP_SECONDS", 600.0)
    monkeypatch.setattr("notify.sender.claimer._BEGIN_SECONDS", 600.0)
    monkeypatch.setattr("notify.presence.STALE_SECONDS", 600.0)
    monkeypatch.setattr("notify.presence._senders._seconds", 600.0)
    monkeypatch.setattr("notify.presence._dedicated._seconds", 600.0)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def subscribed(
    biz: Biz, name: str, url: str = "http://127.0.0.1:9/", **fields: object
) -> BizReceive:
    receive = Receive.objects.create(name=name, url=url)
    return BizReceive.objects.create(biz=biz, receive=receive, **fields)


def queue_of(row: BizReceive) -> str:
    return orders.queue_name(row.biz_id, row.receive_id)


def put(row: BizReceive, orders: int, items: int = 100, lease: float = 120) -> list[int]:
    """Orders with items whose message ids ascend; the ids."""
    made = [
        Order(
            row.pk, "c" * 32, time.time() + lease,
            [Item(row.pk * 10**6 + n * 1000 + i, n * 1000 + i, 1, "{}") for i in range(items)],
        )
        for n in range(orders)
    ]  # fmt: skip
    queues.put(queue_of(row), made, ttl=240)
    return [item.msg_id for order in made for item in order.items]


@contextlib.contextmanager
def running(**options: Any) -> Iterator[Sender]:
    sender = Sender(**options)
    sender.start()
    try:
        yield sender
    finally:
        sender.drain(time.monotonic() + 2)
        sender.stop()
        # It asks the database, and must not do so beside what comes next.
        sender.refresher.stop(60)


def turn_until(sender: Sender, condition: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        sender.turn()


def results() -> list[Result]:
    """Everything on the marker's queue, which stays there."""
    found: list[Result] = []
    while job := queues.claim(orders.MARKER_QUEUE, 60):
        found += msgspec.convert(job.data, list[Result])
    return found


class Hanging:
    """Accepts and never answers, until it hangs up on all: then nothing has to be waited for."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def hang_up(self) -> None:
        self._listener.close()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.hang_up()


class TestIsolation:
    @pytest.fixture(autouse=True)
    def _patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Requests may hang for longer than is waited for what goes to others."""
        monkeypatch.setattr("notify.subscriptions.limits.longest_timeout", lambda: HANGS)

    def test_hanging_consumers_leave_room_for_others(
        self, biz: Biz, hanging: Hanging, tmp_path: Path
    ) -> None:
        with SinkProcess(tmp_path / "seen", []) as sink:
            for n in range(12):
                put(subscribed(biz, f"hanging-{n}", hanging.url, timeout=HANGS), 1, lease=2 * HANGS)
            healthy = subscribed(biz, "healthy", sink.url)
            put(healthy, 1)
            with running(window=64) as sender:
                turn_until(sender, lambda: len(sink.lines()) == 100)
                hanging.hang_up()

    def test_one_after_another_they_cannot_take_the_reserve(
        self, biz: Biz, hanging: Hanging, tmp_path: Path
    ) -> None:
        """Each arrives alone and could fill half of what is free."""
        rows = [subscribed(biz, f"hanging-{n}", hanging.url, timeout=HANGS) for n in range(12)]
        with SinkProcess(tmp_path / "seen", []) as sink:
            healthy = subscribed(biz, "healthy", sink.url)
            with running(window=64) as sender:
                for row in rows:
                    put(row, 1, lease=2 * HANGS)
                    turn_until(sender, lambda row=row: _in_flight(sender, row) > 0)
                put(healthy, 1)
                turn_until(sender, lambda: len(sink.lines()) == 100)
                hanging.hang_up()

    def test_a_turn_has_as_much_for_each_system(self, biz: Biz, hanging: Hanging) -> None:
        """Turns are long when a thousand consumers have a request each: another system's only
        consumer has more than one."""
        for n in range(40):
            put(subscribed(biz, f"one-of-many-{n}", hanging.url), 1, items=2)
        only = subscribed(Biz.objects.create(name="quiet"), "only", hanging.url)
        put(only, 1)
        sender = Sender(window=64)
        sender.subscriptions.refresh()
        assert sender.claimer.claim() == 41
        sender.turn()
        assert _in_flight(sender, only) >= 64 // 4
        sender.engine.close()

    def test_a_database_that_hangs_stops_nobody(self, biz: Biz, tmp_path: Path) -> None:
        with SinkProcess(tmp_path / "seen", []) as sink:
            row = subscribed(biz, "healthy", sink.url)
            with running() as sender:
                put(row, 1)
                turn_until(sender, lambda: len(sink.lines()) == 100)
                with _locked("biz_receive"):
                    turn_until(sender, _has_waiting_reader)  # the refresher
                    put(row, 2)
                    turn_until(sender, lambda: len(sink.lines()) == 300)


def _in_flight(sender: Sender, row: BizReceive) -> int:
    return sum(lane.in_flight for lane in sender.lanes if lane.subscription == row.pk)


def _is_open(row: BizReceive) -> bool:
    """True if its breaker is reported as open."""
    state = presence.read().get(row.pk)
    return state is not None and state.is_open


@contextlib.contextmanager
def _locked(table: str) -> Iterator[None]:
    """A database that does not answer readers of this table (SQLite's readers never wait)."""
    if connection.vendor != "mysql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {table} WRITE")
        try:
            yield
        finally:
            cursor.execute("UNLOCK TABLES")


def _has_waiting_reader() -> bool:
    """True if somebody waits for a locked table, and on SQLite."""
    if connection.vendor != "mysql":
        return True
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM information_schema.PROCESSLIST "
            "WHERE STATE = 'Waiting for table metadata lock'"
        )
        return cursor.fetchone() is not None


class TestBreaker:
    def test_a_dead_consumer_is_left_alone(self, biz: Biz) -> None:
        row = subscribed(biz, "dead", f"http://127.0.0.1:{refusing_port()}/", in_flight_limit=1)
        put(row, 2)
        with running(policy=SLOW_TO_PROBE) as sender:
            turn_until(sender, lambda: _given(row, sender) == 200)
            put(row, 1)
            turn_until(sender, lambda: _given(row, sender) == 300)
            turn_until(sender, lambda: _is_open(row))
        outcomes = Counter(result.outcome for result in results())
        assert outcomes == {"failed": 3, "unsent": 297}, "three tries open it, the rest goes back"

    def test_it_opens_by_the_settings_that_programs_have(self, biz: Biz) -> None:
        row = subscribed(biz, "dead", f"http://127.0.0.1:{refusing_port()}/", in_flight_limit=1)
        put(row, 2)
        with running() as sender:
            turn_until(sender, lambda: _is_open(row))

    def test_it_is_probed_with_one_message_and_recovers(self, biz: Biz, tmp_path: Path) -> None:
        port = refusing_port()
        row = subscribed(biz, "away", f"http://127.0.0.1:{port}/", in_flight_limit=1)
        with running(policy=QUICK) as sender:
            put(row, 1, items=10)
            turn_until(sender, lambda: _given(row, sender) == 10)
            first = Counter(result.outcome for result in results())
            assert first == {"failed": 3, "unsent": 7}
            turn_until(sender, lambda: sender.lanes[row.pk].allowance(time.monotonic()) == 1)
            with SinkProcess(tmp_path / "seen", [], port=port) as sink:
                put(row, 1, items=10)
                turn_until(sender, lambda: len(sink.lines()) == 10)
                turn_until(sender, lambda: row.pk in presence.read() and not _is_open(row))

    def test_a_successor_goes_on_with_the_open_breaker(self, biz: Biz) -> None:
        row = subscribed(biz, "dead", f"http://127.0.0.1:{refusing_port()}/", in_flight_limit=1)
        with running(policy=SLOW_TO_PROBE) as sender:
            put(row, 1)
            turn_until(sender, lambda: _is_open(row))
        results()
        with running(policy=SLOW_TO_PROBE) as successor:
            put(row, 1)
            turn_until(successor, lambda: _given(row, successor) == 100)
        assert {result.outcome for result in results()} == {"unsent"}

    @pytest.mark.parametrize("ending", ["discarded", "deleted", "listened"])
    def test_it_is_forgotten_with_its_subscription(self, biz: Biz, ending: str) -> None:
        row = subscribed(biz, "dead", f"http://127.0.0.1:{refusing_port()}/", in_flight_limit=1)
        paused = subscribed(biz, "off", f"http://127.0.0.1:{refusing_port()}/", in_flight_limit=1)
        with running(policy=SLOW_TO_PROBE) as sender:
            put(row, 1)
            put(paused, 1)
            turn_until(sender, lambda: _is_open(row) and _is_open(paused))
            BizReceive.objects.filter(pk=paused.pk).update(status=BizReceive.Status.PAUSED)
            match ending:
                case "discarded":
                    rows = BizReceive.objects.filter(pk=row.pk)
                    rows.update(status=BizReceive.Status.DISCARDED)
                case "deleted":
                    BizReceive.objects.filter(pk=row.pk).delete()
                case "listened":
                    delivery = Receive.Delivery.LISTEN
                    Receive.objects.filter(pk=row.receive_id).update(delivery=delivery, url="")
            turn_until(sender, lambda: row.pk not in {lane.subscription for lane in sender.lanes})
            turn_until(sender, lambda: not _is_open(row))
            assert _is_open(paused), "it may be resumed"

    def test_one_that_refuses_some_messages_is_not_away(self, biz: Biz) -> None:
        refusal = b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 0\r\n\r\n"
        with Sink(answering(refusal)) as sink:
            row = subscribed(biz, "strict", sink.url())
            put(row, 1)
            with running(policy=QUICK) as sender:
                turn_until(sender, lambda: len(sink.requests) == 100)
                turn_until(sender, lambda: sender.heartbeat.done == 100)
                assert sender.heartbeat.failed == 0, "the program does its work"


def _given(row: BizReceive, sender: Sender) -> int:
    """Results that were written, or wait to be."""
    waiting = queues.depths([orders.MARKER_QUEUE])[orders.MARKER_QUEUE]
    if not waiting or queues.depths([queue_of(row)])[queue_of(row)]:
        return 0
    return _put_so_far() if not _in_flight(sender, row) else 0


def _put_so_far() -> int:
    from rq.job import Job

    from msgplatform.core.connections import work_redis

    client = work_redis()
    keys = [*client.lrange(f"rq:queue:{orders.MARKER_QUEUE}", 0, -1)]
    jobs = Job.fetch_many([k.decode() for k in keys], client, serializer=queues.Serializer)
    return sum(len(job.args[0]) for job in jobs if job)


class TestRateAndOrder:
    @pytest.mark.parametrize("rate", [20.0, 90.0])
    def test_rate_and_order_by_the_consumers_clock(
        self, biz: Biz, tmp_path: Path, rate: float
    ) -> None:
        """In no half second more than the rate allows; attempts start in the order of ids."""
        count = int(rate * 2.5)
        with (
            SinkProcess(tmp_path / "seen", []) as sink,
            SinkProcess(tmp_path / "free", []) as free,
            SinkProcess(tmp_path / "single", []) as single,
        ):
            paced = subscribed(biz, "paced", sink.url, rate_limit=rate, in_flight_limit=1)
            other = subscribed(biz, "other", free.url)
            # As many, one at a time, as fast as this machine can at present.
            one_by_one = subscribed(biz, "single", single.url, in_flight_limit=1)
            ids = put(paced, 2, items=-(-count // 2))
            put(one_by_one, 2, items=-(-count // 2))
            put(other, 1, items=100)
            wanted = [(sink, len(ids)), (single, len(ids)), (free, 100)]
            with running() as sender:
                turn_until(sender, lambda: all(len(to.lines()) >= n for to, n in wanted))
            times, unpaced = sorted(sink.times()), sorted(single.times())
            assert len(free.lines()) == 100
            assert median(free.times()) < median(times), "nobody waits for a paced one"
        assert [int(line) for line in sink.lines()] == ids
        burst = max(1, int(rate * 0.05))
        for first, start in enumerate(times):
            within = sum(1 for moment in times[first:] if moment < start + 0.5)
            # One more for a request that the network or the sink held up.
            assert within <= rate * 0.5 + burst + 1
        possible = max(1 / rate, _gap(unpaced))
        # Half the time for which the sender waits when nothing happens. The machine may be slower
        # by then than when the other one was measured.
        assert _gap(times) < possible + 0.25, "and not much slower than allowed"

    def test_in_flight_limit_is_kept(self, biz: Biz) -> None:
        from tests.support.http_sinks import slow

        with Sink(slow(0.02, together=3)) as sink:
            row = subscribed(biz, "narrow", sink.url(), in_flight_limit=3, timeout=50)
            put(row, 1)
            with running() as sender:
                turn_until(sender, lambda: len(sink.requests) == 100)
            assert sink.most_busy == 3

    def test_messages_that_come_one_by_one_fill_the_window_too(
        self, biz: Biz, hanging: Hanging
    ) -> None:
        """Each is an order of its own, and the consumer takes its time to answer."""
        row = subscribed(biz, "thoughtful", hanging.url, in_flight_limit=6, timeout=50)
        queue = queue_of(row)
        put(row, 10, items=1)
        with running() as sender:
            turn_until(sender, lambda: _in_flight(sender, row) == 6)
            turn_until(sender, lambda: queues.lengths([queue])[queue] == (3, 7))
            for _ in range(6):
                sender.turn()
            assert queues.lengths([queue])[queue] == (3, 7), "one more is ready, and no other"
            sender.subscriptions.refresh()
            subscription = sender.subscriptions.get(row.pk)
            assert subscription
            assert Capacity.read([subscription.queue]).offer(subscription) is None
            for _ in range(2):
                queues.claim(queue, 60)
            assert Capacity.read([subscription.queue]).offer(subscription), (
                "one waits, two are unsent"
            )
            hanging.hang_up()


def _gap(times: Sequence[float]) -> float:
    """Between two of them, as a rule."""
    return median(after - before for before, after in pairwise(times))


def test_who_gave_a_subscription_up_says_nothing_of_it(biz: Biz) -> None:
    """Its old word of an open breaker must not stand against its successor's."""
    row = subscribed(biz, "one")
    known = Subscriptions()
    known.refresh()
    old = OrderClaimer("old", known, wake=lambda: None)
    new = OrderClaimer("new", known, wake=lambda: None)
    opened = presence.LaneState(sender="old", breaker=breaker.State.OPEN, retry_in=60.0)

    def report(claimer: OrderClaimer, states: dict[int, presence.LaneState]) -> None:
        claimer.states = states
        claimer._next_report.at_once()
        claimer.report()

    report(old, {row.pk: opened})
    assert presence.read()[row.pk].is_open
    report(new, {row.pk: presence.LaneState(sender="new", in_flight=1)})
    report(new, {})
    report(old, {row.pk: opened})
    assert not presence.read()[row.pk].is_open
    assert old.lost == {row.pk}, "its lane is dropped"


def test_the_maker_hears_of_a_breaker_when_its_new_state_is_known(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may move while the state before is being reported."""
    row = subscribed(biz, "one")
    known, told = Subscriptions(), list[bool]()
    known.refresh()
    claimer = OrderClaimer("me", known, wake=lambda: None)
    opened = presence.LaneState(sender="me", breaker=breaker.State.OPEN, retry_in=60.0)
    claimer.set_states({row.pk: opened}, at_once=False)
    read = presence.read

    def read_and_move() -> dict[int, presence.LaneState]:
        monkeypatch.setattr(presence, "read", read)
        claimer.set_states({row.pk: presence.LaneState(sender="me")}, at_once=True)
        return read()

    monkeypatch.setattr(signals.MAKER, "send", lambda: told.append(read()[row.pk].is_open))
    monkeypatch.setattr(presence, "read", read_and_move)
    for _ in range(2):
        claimer.report()
    assert told == [False]


def test_a_full_lane_with_a_rate_limit_does_not_spin(biz: Biz, hanging: Hanging) -> None:
    row = subscribed(biz, "slow", hanging.url, rate_limit=1000.0, in_flight_limit=1)
    put(row, 1, items=10)
    with running() as sender:
        turn_until(sender, lambda: _in_flight(sender, row) == 1)
        turns, deadline = 0, time.monotonic() + 0.5
        while time.monotonic() < deadline:
            sender.turn()
            turns += 1
        assert turns < 300
        hanging.hang_up()


def test_draining_waits_for_what_is_on_its_way(biz: Biz) -> None:
    """An answer that comes after the drain's time would be a second delivery."""
    from tests.support.http_sinks import slow

    with Sink(slow(1.0)) as sink:
        row = subscribed(biz, "slow", sink.url(), timeout=50)
        put(row, 1, items=1)
        sender = Sender()
        sender.start()
        turn_until(sender, lambda: len(sink.requests) == 1)
        sender.drain(time.monotonic())
        sender.stop()
    assert [result.outcome for result in results()] == ["delivered"]


class TestOnTheWire:
    def test_headers_prefix_and_both_signatures(self, biz: Biz) -> None:
        from datetime import timedelta

        from django.utils import timezone

        old, new = "whsec_" + "QUJD" * 11, "whsec_" + "REVG" * 11
        with Sink(answering()) as sink:
            row = subscribed(biz, "one", sink.url())
            Receive.objects.filter(pk=row.receive_id).update(
                secret=new, previous_secret=old, header_prefix="svix",
                previous_secret_until=timezone.now() + timedelta(hours=1),
                headers={"X-Api-Key": "k-1"},
            )  # fmt: skip
            put(row, 1, items=1)
            with running() as sender:
                turn_until(sender, lambda: len(sink.requests) == 1)
        (seen,) = sink.requests
        assert seen.headers["x-api-key"] == "k-1"
        standard = {
            f"webhook-{part}": seen.headers[f"svix-{part}"]
            for part in ("id", "timestamp", "signature")
        }
        for secret in (old, new):
            standardwebhooks.Webhook(secret).verify(seen.body, standard)

    def test_networks_narrow_where_it_may_go(self, biz: Biz) -> None:
        with Sink(answering()) as sink:
            row = subscribed(biz, "one", sink.url())
            Receive.objects.filter(pk=row.receive_id).update(networks=["10.0.0.0/8"])
            put(row, 1, items=1)
            with running() as sender:
                turn_until(sender, lambda: _put_so_far() == 1)
        (result,) = results()
        assert (result.error, sink.requests) == ("address_forbidden", [])


class TestSharing:
    def claimer(self, name: str, only: tuple[int, ...] = ()) -> OrderClaimer:
        known = Subscriptions()
        known.refresh()
        return OrderClaimer(name, known, wake=lambda: None, only=only)

    def finish(self, orders: list[ClaimedOrder]) -> None:
        for order in orders:
            queues.remove_orders([order.claimed])
            order.open_items = 0

    def test_a_second_sender_gets_its_half(self, biz: Biz) -> None:
        rows = [subscribed(biz, f"s{n}") for n in range(20)]
        for row in rows:
            put(row, 12, items=1)
        first, second = self.claimer("first"), self.claimer("second")
        taken: dict[str, set[int]] = {"first": set(), "second": set()}
        for _ in range(6):
            for claimer in (first, second):
                claimer._next_report.at_once()
                claimer.report()
                claimer.claim()
                orders = claimer.take()
                taken[claimer.owner] |= {order.order.subscription for order in orders}
                self.finish(orders)
        assert len(taken["second"]) >= 5, "it does not stay idle beside a busy one"
        owned = [
            {row.pk for row in rows if queue_of(row) in claimer._in_flight}
            for claimer in (first, second)
        ]
        assert not owned[0] & owned[1]

    def test_every_subscription_gets_its_first_order(self, biz: Biz) -> None:
        rows = [subscribed(biz, f"s{n}") for n in range(80)]
        for row in rows:
            put(row, 3, items=1)
        claimer = self.claimer("me")
        claimer.claim()
        assert {order.order.subscription for order in claimer.take()} == {row.pk for row in rows}

    def test_memory_is_bounded_and_everybody_has_a_turn(
        self, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("notify.sender.in_flight.MAX_ITEMS", 250)
        rows = [subscribed(biz, f"s{n}") for n in range(10)]
        for row in rows:
            put(row, 3)
        claimer = self.claimer("me")
        served: set[int] = set()
        for _ in range(20):
            claimer.claim()
            orders = claimer.take()
            assert sum(order.open_items for order in orders) <= 350
            served |= {order.order.subscription for order in orders}
            self.finish(orders)
        assert served == {row.pk for row in rows}

    def test_a_dedicated_sender_takes_only_its_own(self, biz: Biz) -> None:
        rows = [subscribed(biz, f"s{n}") for n in range(3)]
        for row in rows:
            put(row, 1, items=1)
        claimer = self.claimer("me", only=(rows[1].pk,))
        claimer.claim()
        assert [order.order.subscription for order in claimer.take()] == [rows[1].pk]

    def test_nobody_else_takes_what_has_a_process_of_its_own(self, biz: Biz) -> None:
        own, *others = [subscribed(biz, f"s{n}") for n in range(3)]
        BizReceive.objects.filter(pk=own.pk).update(own_process=True)
        for row in (own, *others):
            put(row, 1, items=1)
        general = self.claimer("general")
        general.report()
        general.claim()
        taken = {order.order.subscription for order in general.take()}
        assert taken == {row.pk for row in others}
        dedicated = self.claimer("dedicated", only=(own.pk,))
        dedicated.claim()
        assert [order.order.subscription for order in dedicated.take()] == [own.pk]

    def test_a_dedicated_sender_takes_no_share_of_the_others(self, biz: Biz) -> None:
        """It would leave half of them without anybody."""
        own, *others = [subscribed(biz, f"s{n}") for n in range(5)]
        BizReceive.objects.filter(pk=own.pk).update(own_process=True)
        for row in (own, *others):
            put(row, 3, items=1)
        general, dedicated = self.claimer("general"), self.claimer("dedicated", only=(own.pk,))
        for claimer in (dedicated, general, dedicated, general):
            claimer._next_report.at_once()
            claimer.report()
            claimer.claim()
        assert {order.order.subscription for order in general.take()} == {r.pk for r in others}
        assert {order.order.subscription for order in dedicated.take()} == {own.pk}


class TestDeadSender:
    """Its ownership is over, its claims are not."""

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(in_flight, "patience", lambda timeout: 0.0)

    def claimers(self) -> tuple[OrderClaimer, OrderClaimer]:
        known = Subscriptions()
        known.refresh()
        dead, alive = (OrderClaimer(name, known, wake=lambda: None) for name in ("dead", "alive"))
        return dead, alive

    def report(self, claimer: OrderClaimer, states: dict[int, presence.LaneState]) -> None:
        claimer.states = states
        claimer._next_report.at_once()
        claimer.report()

    def dies(self, row: BizReceive) -> None:
        work_redis().delete(OWNER + queue_of(row))

    def stands_still(self, biz: Biz) -> tuple[OrderClaimer, ClaimedOrder]:
        """A sender whose order another one has put back, and that order."""
        row = subscribed(biz, "one")
        put(row, 1, items=3)
        slow, alive = self.claimers()
        slow.claim()
        (held,) = slow.take()
        self.dies(row)
        self.report(alive, {})
        return slow, held

    def test_what_it_had_in_hand_is_given_back(self, biz: Biz) -> None:
        row = subscribed(biz, "one")
        ids = put(row, 4, items=1)
        dead, alive = self.claimers()
        while dead.claim():
            pass
        held = dead.take()
        assert len(held) == 2
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (2, 2)}, "it is alive"
        self.report(dead, {row.pk: presence.LaneState(sender="dead", waiting=100, in_flight=5)})
        self.dies(row)
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (4, 0)}
        assert not presence.read()[row.pk].has_work, "the maker queues more at once"
        while alive.claim():
            pass
        taken = alive.take()
        assert [order.order.items[0].msg_id for order in taken] == ids[:2], "they are in front"
        assert all(order.is_lost for order in taken)
        queues.remove_orders([order.claimed for order in held])  # it was not dead at all
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (2, 0)}
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (2, 0)}

    def test_also_when_another_sender_owns_the_queue_already(self, biz: Biz) -> None:
        row = subscribed(biz, "one")
        put(row, 3, items=1)
        dead, alive = self.claimers()
        dead.claim()
        self.dies(row)
        alive.claim()
        (own,) = alive.take()
        assert not own.is_lost
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (2, 1)}, "not what it has itself"

    def test_its_last_requests_are_over(self, biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
        """It may have begun one when its ownership ended."""
        timeouts: list[float] = []
        monkeypatch.setattr(
            in_flight, "patience", lambda timeout: timeouts.append(timeout) or 600.0
        )
        row = subscribed(biz, "one", timeout=7)
        put(row, 1, items=1)
        dead, alive = self.claimers()
        dead.claim()
        self.dies(row)
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (0, 1)}
        assert timeouts == [7.0]
        assert (patience(2), patience(30)) == (7, 30)
        dead._next_renewal.at_once()
        dead._keep()  # it had only stood still
        monkeypatch.setattr(in_flight, "patience", lambda timeout: 0.0)
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (0, 1)}

    def test_who_stood_still_sends_nothing_that_was_taken_back(self, biz: Biz) -> None:
        """Also when the other one has finished with it, and gives its queue up."""
        one, other = subscribed(biz, "one"), subscribed(biz, "other")
        put(one, 1, items=3), put(other, 1, items=1)
        slow, alive = self.claimers()
        slow.claim()
        held = {order.claimed.queue: order for order in slow.take()}
        self.dies(one)
        self.report(alive, {})
        alive.claim()
        (returned,) = alive.take()
        queues.remove_orders([returned.claimed])
        alive.disown()
        slow._next_renewal.at_once()
        slow._keep()
        assert held[queue_of(one)].is_lost
        assert not held[queue_of(other)].is_lost, "nobody has taken it"

    def test_a_look_that_failed_is_made_again(
        self, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only one renewal says that the ownership has lapsed."""
        slow, held = self.stands_still(biz)
        suspend(monkeypatch, 601)
        ask = owners.filter_claimed

        def fail_once(orders: Any) -> Any:
            monkeypatch.setattr(owners, "filter_claimed", ask)
            raise RedisError("away")

        monkeypatch.setattr(owners, "filter_claimed", fail_once)
        slow._next_renewal.at_once()
        with pytest.raises(RedisError):
            slow._keep()
        assert not held.is_lost
        slow._keep()
        assert held.is_lost

    def test_who_stood_still_does_not_take_its_own_order_for_a_dead_one_s(self, biz: Biz) -> None:
        slow, held = self.stands_still(biz)
        slow._next_renewal.at_once()
        slow._keep()
        assert held.is_lost, "before it claims the order once more"
        slow.claim()
        (again,) = slow.take()
        assert again.is_lost

    def test_no_request_begins_while_the_ownership_is_in_doubt(
        self, biz: Biz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with SinkProcess(tmp_path / "seen", []) as sink:
            row = subscribed(biz, "one", sink.url)
            put(row, 1, items=3)
            sender = Sender()
            sender.refresher.start()
            sender.results.start()
            sender.subscriptions.refresh()
            try:
                sender.claimer.claim()
                suspend(monkeypatch, 601)
                for _ in range(20):
                    sender.turn()
                assert [len(lane.waiting) for lane in sender.lanes] == [3]
                sender.claimer._next_renewal.at_once()
                sender.claimer._keep()
                turn_until(sender, lambda: len(sink.lines()) == 3)
            finally:
                sender.stop()
                sender.refresher.stop(60)

    def test_results_that_wait_come_first(self, biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it has sent may be among them."""
        monkeypatch.setattr(orders, "MARKER_LAG_SECONDS", 1e-6)
        row = subscribed(biz, "one")
        put(row, 1, items=1)
        queues.put(orders.MARKER_QUEUE, [[]], ttl=None)
        dead, alive = self.claimers()
        dead.claim()
        self.dies(row)
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (0, 1)}
        results()
        work_redis().delete(f"rq:queue:{orders.MARKER_QUEUE}:intermediate")  # they are marked
        self.report(alive, {})
        assert queues.lengths([queue_of(row)]) == {queue_of(row): (1, 0)}

    def test_nothing_of_it_is_sent_as_it_is(
        self, biz: Biz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with SinkProcess(tmp_path / "seen", []) as sink:
            row = subscribed(biz, "one", sink.url)
            ids = put(row, 2, items=3)
            dead, alive = self.claimers()
            dead.claim()
            self.dies(row)
            self.report(alive, {})
            monkeypatch.setattr(in_flight, "patience", lambda timeout: 600.0)
            written: list[Result] = []
            with running() as sender:
                turn_until(sender, lambda: written.extend(results()) or len(written) == 6)  # type: ignore[func-returns-value]
            outcomes = {result.id % 10**6: result.outcome for result in written}
            assert sorted(outcomes) == sorted(ids)
            assert {outcomes[id] for id in ids[:3]} == {"unsent"}
            assert {outcomes[id] for id in ids[3:]} == {"delivered"}
            assert len(sink.lines()) == 3

    @pytest.mark.parametrize("held_too_long", [False, True])
    def test_what_a_sender_holds_itself_stays(self, biz: Biz, held_too_long: bool) -> None:
        row = subscribed(biz, "one")
        put(row, 1, items=1)
        _, alive = self.claimers()
        alive.claim()
        if held_too_long:
            self.dies(row)
        self.report(alive, {})
        assert queues.depths([queue_of(row)]) == {queue_of(row): 1}

    def test_its_probe_is_sent_anew(self, biz: Biz) -> None:
        row = subscribed(biz, "one")
        put(row, 1, items=1)
        dead, alive = self.claimers()
        dead.claim()
        probing = presence.LaneState(
            sender="dead", in_flight=1, breaker=breaker.State.HALF_OPEN, opened_in_a_row=3,
            retry_in=60.0, open_for=100.0,
        )  # fmt: skip
        self.report(dead, {row.pk: probing})
        alive.subscriptions.refresh()
        subscription = alive.subscriptions.get(row.pk)
        assert subscription
        assert Capacity.read([subscription.queue]).offer(subscription) is None
        self.dies(row)
        self.report(alive, {})
        alive.claim()
        queues.remove_orders([order.claimed for order in alive.take() if order.is_lost])
        offer = Capacity.read([subscription.queue]).offer(subscription)
        assert offer
        assert offer.items == 1
        state = presence.read()[row.pk]
        assert (state.is_open, state.opened_in_a_row) == (True, 3)
        assert state.open_for >= 100.0


def test_unreadable_orders_are_dropped(biz: Biz) -> None:
    row = subscribed(biz, "one")
    queues.put(queue_of(row), [{"nonsense": 1}], ttl=60)
    put(row, 1, items=1)
    known = Subscriptions()
    known.refresh()
    claimer = OrderClaimer("me", known, wake=lambda: None)
    claimer.claim()
    claimer.claim()
    assert len(claimer.take()) == 1


def test_leases_go_by_the_databases_clock(
    biz: Biz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender whose clock is an hour ahead delivers all the same, and says so."""
    import time as clock

    real = clock.time
    monkeypatch.setattr("notify.directory.time.time", lambda: real() + 3600)
    with SinkProcess(tmp_path / "seen", []) as sink:
        row = subscribed(biz, "one", sink.url)
        made = Order(row.pk, "c" * 32, real() + 120, [Item(1, 1, 1, "{}")])
        queues.put(queue_of(row), [made], ttl=240)
        with running() as sender:
            turn_until(sender, lambda: len(sink.lines()) == 1)
    assert Alert.objects.filter(kind="notify.clock").exclude(open_key=None).exists()
    # Somebody sets the clock, and starts everything again.
    monkeypatch.undo()
    Subscriptions().refresh(at_once=True)
    assert not Alert.objects.exclude(open_key=None).exists()


def test_a_message_whose_lease_may_end_during_the_request_goes_back(
    biz: Biz, tmp_path: Path
) -> None:
    with SinkProcess(tmp_path / "seen", []) as sink:
        late = subscribed(biz, "late", sink.url, timeout=50)
        put(late, 1, items=3, lease=50)
        with running() as sender:
            turn_until(sender, lambda: _given(late, sender) == 3)
        assert [result.outcome for result in results()] == ["unsent"] * 3
        assert sink.lines() == []


def test_draining_gives_back_what_was_not_started(biz: Biz, hanging: Hanging) -> None:
    row = subscribed(biz, "one", hanging.url, in_flight_limit=1)
    put(row, 1, items=50)
    before = set(threading.enumerate())
    sender = Sender()
    sender.start()
    turn_until(sender, lambda: _in_flight(sender, row) == 1)
    hanging.hang_up()
    sender.drain(time.monotonic() + 60)
    sender.stop()
    outcomes = Counter(result.outcome for result in results())
    assert outcomes == {"failed": 1, "unsent": 49}
    own = set(threading.enumerate()) - before
    for thread in own:
        thread.join(120)
    assert not [thread.name for thread in own if thread.is_alive()]


class TestOneSenderAtATime:
    """Whoever has requests in flight owns their queue; else limits would count twice."""

    def owner(self, row: BizReceive) -> str:
        holder: Any = work_redis().get(OWNER + queue_of(row))
        return (holder or b"").decode()

    def test_after_a_flush_who_has_orders_in_hand_owns_their_queue_again(
        self, biz: Biz, hanging: Hanging
    ) -> None:
        row = subscribed(biz, "one", hanging.url, timeout=50)
        put(row, 2, items=1)
        with running() as sender:
            turn_until(sender, lambda: _in_flight(sender, row) == 2)
            work_redis().flushdb()
            turn_until(sender, lambda: self.owner(row) == sender.name)
            hanging.hang_up()

    def test_what_another_sender_has_by_now_goes_back_unsent(
        self, biz: Biz, hanging: Hanging
    ) -> None:
        row = subscribed(biz, "one", hanging.url, in_flight_limit=1, timeout=50)
        put(row, 1, items=50)
        with running() as sender:
            turn_until(sender, lambda: _in_flight(sender, row) == 1)
            work_redis().set(OWNER + queue_of(row), "another", px=600_000)
            found: list[Result] = []
            turn_until(sender, lambda: bool(found.extend(results()) or len(found) == 49))
            assert {result.outcome for result in found} == {"unsent"}
            assert self.owner(row) == "another"
            hanging.hang_up()

    def test_its_queue_is_nobody_else_s_while_it_drains(
        self, biz: Biz, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("notify.subscriptions.limits.longest_timeout", lambda: HANGS)
        row = subscribed(biz, "one", hanging.url, in_flight_limit=1, timeout=HANGS)
        put(row, 1, items=2, lease=2 * HANGS)
        sender = Sender()
        sender.start()
        turn_until(sender, lambda: _in_flight(sender, row) == 1)
        draining = threading.Thread(target=sender.drain, args=(time.monotonic(),))
        draining.start()
        deadline, found = time.monotonic() + 120, list[Result]()
        while not found and time.monotonic() < deadline:
            found += results()  # what it had not begun: no order is claimed any more
        work_redis().delete(OWNER + queue_of(row))
        while not self.owner(row) and time.monotonic() < deadline:
            time.sleep(0.01)
        owner = self.owner(row)
        hanging.hang_up()
        draining.join(120)
        sender.stop()
        assert [result.outcome for result in found] == ["unsent"]
        assert owner == sender.name


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(CommandError, match="--window must be at least 1"):
        run_sender.Command().worker(window=0, subscription=[])
