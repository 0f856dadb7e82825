"""Thousands of subscriptions: messages go to those that take them, and idle ones cost little."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import OperationalError, connection, models
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from msgplatform.core import alerts
from msgplatform.core.daemons import snapshot
from msgplatform.core.data import sql
from msgplatform.core.queues import jobs, recovery
from msgplatform.models import Alert, Biz
from notify import directory, orders
from notify.directory import Subscriptions, from_row
from notify.maker import dispatcher, fanout
from notify.models import BizMsg, BizReceive, Receive, ReceiveMsg
from notify.subscriptions import signing
from notify.subscriptions.matching import compile_filter
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import Maker

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
_Status = ReceiveMsg.Status


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def kinds(biz: Biz, count: int) -> list[BizReceive]:
    """A subscription for each event type kind.0, kind.1, …"""
    return [subscription(biz, f"to-{n}", event_types=[f"kind.{n}"]) for n in range(count)]


def deliveries() -> set[tuple[int, int]]:
    """(message, subscription) of all deliveries."""
    return set(ReceiveMsg.objects.values_list("msg_id", "biz_receive_id"))


# -- split ---------------------------------------------------------------------------------------
def test_each_event_type_of_a_batch_has_its_own_subscription(biz: Biz) -> None:
    own = kinds(biz, 60)
    everything = subscription(biz, "all", status=BizReceive.Status.PAUSED)
    pattern = subscription(biz, "pattern", event_types=["kind.*", "kind.7"])
    channel = subscription(biz, "channel", event_types=["kind.3"], channels=["eu"])
    two = subscription(biz, "two", event_types=["kind.1", "kind.2"])
    expected: set[tuple[int, int]] = set()
    for n in range(60):
        for message in publish(biz, 2, event_type=f"kind.{n}"):
            takers = [own[n], everything, pattern, *([two] if n in (1, 2) else [])]
            expected |= {(message, each.pk) for each in takers}
    for message in publish(biz, 3, event_type="other"):
        expected.add((message, everything.pk))
    maker = Maker()
    while BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).exists():
        maker.turn()
    assert deliveries() == expected
    assert not [pair for pair in expected if pair[1] == channel.pk]
    held = ReceiveMsg.objects.filter(status=_Status.HELD)
    assert set(held.values_list("biz_receive_id", flat=True)) == {everything.pk}
    queued = ReceiveMsg.objects.filter(status=_Status.QUEUED)
    assert queued.count() == len(expected) - held.count()
    # A message's and a subscription's deliveries are in the order of the messages.
    ids = list(ReceiveMsg.objects.order_by("id").values_list("msg_id", "biz_receive_id"))
    assert ids == sorted(ids)


def test_a_batch_that_is_split_again_adds_nothing(biz: Biz) -> None:
    kinds(biz, 10)
    for n in range(10):
        publish(biz, 1, event_type=f"kind.{n}")
    maker = Maker()
    maker.turn()
    first = deliveries()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE biz_msg SET state = 0")
    maker.turn()
    assert deliveries() == first
    assert len(first) == 10


def test_filters_that_could_not_be_read_are_read_again(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that goes away in between must not leave a system without recipients."""
    rows = kinds(biz, 6)
    for n in range(6):
        publish(biz, 1, event_type=f"kind.{n}")
    maker = Maker()
    original, answers = fanout._filter, iter([None, OperationalError("gone"), *[None] * 20])

    def failing(event_types: str, channels: str) -> Any:
        if error := next(answers):
            raise error
        return original(event_types, channels)

    monkeypatch.setattr(fanout, "_filter", failing)
    with pytest.raises(OperationalError):
        maker.turn()
    assert not deliveries()
    maker.turn()
    assert {subscription for _message, subscription in deliveries()} == {row.pk for row in rows}


def test_filters_that_two_subscriptions_swap_are_read_again(biz: Biz) -> None:
    """Of these two rows the sum of CRC32 stays the same."""
    one = subscription(biz, "one", id=120, event_types=["order.sent"])
    other = subscription(biz, "other", id=153, event_types=["stock.high"])
    maker = Maker()
    (first,) = publish(biz, 1, event_type="order.sent")
    maker.turn()
    for row, event_type in ((one, "stock.high"), (other, "order.sent")):
        BizReceive.objects.filter(pk=row.pk).update(event_types=[event_type])
    (second,) = publish(biz, 1, event_type="order.sent")
    maker.turn()
    assert deliveries() == {(first, one.pk), (second, other.pk)}


def test_a_filter_that_changes_back_between_two_statements_is_read_again(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = subscription(biz, event_types=["order.paid"])
    rows, read_checksums = BizReceive.objects.filter(pk=row.pk), fanout._read_checksums

    def changing(biz_ids: Any) -> Any:
        checksums = read_checksums(biz_ids)
        rows.update(event_types=["nothing"])
        return checksums

    recipients = fanout.Recipients()
    monkeypatch.setattr(fanout, "_read_checksums", changing)
    recipients.refresh([biz.pk])
    monkeypatch.undo()
    rows.update(event_types=["order.paid"])
    recipients.refresh([biz.pk])
    assert recipients._systems[biz.pk].by("order.paid", "") == (row.pk,)


def test_filters_by_channel(biz: Biz) -> None:
    """The answers of the index are those of the filters, and equal ones are kept once."""
    types, channels = ["a.b", "a.c", "x"], ["eu", "us", "k1", ""]
    choices = [[], ["a.b"], ["a.*"], ["a.*", "x"], ["a.b", "x"]]
    for n, event_types in enumerate(choices):
        for m, own in enumerate(([], ["eu"], ["us", "k1"])):
            subscription(biz, f"s{n}-{m}", event_types=event_types, channels=own)
    recipients = fanout.Recipients()
    recipients.refresh([biz.pk])
    rules = {
        row.pk: compile_filter(row.event_types, row.channels) for row in BizReceive.objects.all()
    }
    system = recipients._systems[biz.pk]
    for event_type in types:
        for channel in channels:
            expected = [pk for pk, rule in rules.items() if rule.matches(event_type, channel)]
            assert system.by(event_type, channel) == tuple(sorted(expected))
    assert system.by("x", "no-1") is system.by("x", "no-2")


# -- the cache of subscriptions ------------------------------------------------------------------
def test_a_setting_that_changes_back_between_two_statements_is_read_again(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, other = subscription(biz), subscription(biz, "other")
    subscriptions = Subscriptions()
    subscriptions.refresh(at_once=True)
    rows, read_checksums = BizReceive.objects.filter(pk=row.pk), directory._read_checksums

    def changing() -> Any:
        checksums = read_checksums()
        rows.update(status=BizReceive.Status.PAUSED)
        return checksums

    rows.update(rate_limit=7)  # so that the row is read
    monkeypatch.setattr(directory, "_read_checksums", changing)
    subscriptions.refresh(at_once=True)
    monkeypatch.undo()
    rows.update(status=BizReceive.Status.NORMAL)
    subscriptions.refresh(at_once=True)
    known = subscriptions.known
    assert known[row.pk].status == known[other.pk].status == BizReceive.Status.NORMAL


MODELS: dict[str, type[models.Model]] = {"s": BizReceive, "r": Receive, "b": Biz}


@pytest.fixture
def made_ids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The subscriptions that were made of their rows, in the order of that."""
    ids: list[int] = []

    def noting(row: BizReceive) -> directory.Subscription:
        ids.append(row.pk)
        return from_row(row)

    monkeypatch.setattr(directory, "from_row", noting)
    return ids


def column(model: type[models.Model], name: str) -> Any:
    return next(field for field in model._meta.concrete_fields if field.column == name)


def changed(field: models.Field[Any, Any], value: Any) -> Any:
    """Another value of a column."""
    if field.name == "filter":
        return {"type": "order.late"}
    if isinstance(field, models.JSONField):
        return {"X-Other": "1"} if isinstance(value, dict) else [*value, 7]
    if isinstance(field, models.DateTimeField):
        return sql.now() + timedelta(days=1)
    if isinstance(field, models.BooleanField):
        return not value
    if isinstance(field, models.IntegerField | models.FloatField):
        return (value or 0) + 1
    return f"{value}x"


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (table, name)
        for table, names in directory.COLUMNS.items()
        for name in names
        if name not in ("biz_id", "receive_id")
    ],
)
def test_a_change_of_a_column_is_noticed(
    biz: Biz, made_ids: list[int], table: str, name: str
) -> None:
    row, model = subscription(biz), MODELS[table]
    known = Subscriptions(refresh_seconds=0)
    known.refresh()
    values: Any = model._default_manager.values_list(column(model, name).name, flat=True).get()
    model._default_manager.update(
        **{column(model, name).name: changed(column(model, name), values)}
    )
    known.refresh()
    assert made_ids == [row.pk, row.pk]


def test_only_what_has_changed_is_read(biz: Biz, made_ids: list[int]) -> None:
    first, second, third = kinds(biz, 3)
    known = Subscriptions(refresh_seconds=0)
    known.refresh()
    made_ids.clear()
    # Counts of failures are written all the time.
    BizReceive.objects.filter(pk=first.pk).update(failures=7)
    known.refresh()
    BizReceive.objects.filter(pk=second.pk).update(rate_limit=5)
    known.refresh()
    assert known.known[second.pk].rate_limit == 5
    third.delete()
    fourth = subscription(biz, "fourth")
    known.refresh()
    assert list(known.known) == [first.pk, second.pk, fourth.pk]
    if connection.vendor == "mysql":  # SQLite has no checksums
        assert made_ids == [second.pk, fourth.pk]


def test_a_row_that_cannot_be_used_has_its_alert_until_it_is_corrected(biz: Biz) -> None:
    first, second = kinds(biz, 2)
    known = Subscriptions(refresh_seconds=0)
    known.refresh()
    Receive.objects.filter(pk=second.receive_id).update(networks=["no network"])
    known.refresh()
    assert (list(known.known), known.is_unusable(second.pk)) == ([first.pk], True)
    BizReceive.objects.filter(pk=first.pk).update(rate_limit=5)  # another one changes
    known.refresh()
    assert known.is_unusable(second.pk)
    (alert,) = Alert.objects.exclude(open_key=None)
    assert alert.key == f"{directory.KIND}:{second.pk}"
    Receive.objects.filter(pk=second.receive_id).update(networks=[])
    known.refresh()
    assert (list(known.known), known.is_unusable(second.pk)) == ([first.pk, second.pk], False)
    assert not Alert.objects.exclude(open_key=None).exists()


def test_the_alert_comes_again_while_the_row_cannot_be_used(
    biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "REPORT_SECONDS", 0)
    row = subscription(biz)
    Receive.objects.filter(pk=row.receive_id).update(networks=["no network"])
    known = Subscriptions(refresh_seconds=0)
    known.refresh()
    key = f"{directory.KIND}:{row.pk}"
    for _ in range(2):
        Alert.objects.get(open_key=key)
        alerts.resolve(key)
        assert not Alert.objects.exclude(open_key=None).exists()
        known.refresh()  # no row has changed
    Alert.objects.get(open_key=key)


@pytest.mark.usefixtures("ids_of_its_own")
def test_a_rotated_secret_ends_in_its_time(biz: Biz) -> None:
    row = subscription(biz)
    known = Subscriptions(refresh_seconds=0)
    until = sql.now() + timedelta(hours=1)
    Receive.objects.filter(pk=row.receive_id).update(
        previous_secret=signing.new_secret(), previous_secret_until=until
    )
    known.refresh()
    assert len(known.known[row.pk].keys) == 2
    with time_machine.travel(until + timedelta(seconds=1)):
        known.refresh()
    assert len(known.known[row.pk].keys) == 1


def test_what_is_not_compared_is_not_used(biz: Biz) -> None:
    """A subscription that is made of other columns would stay as it was."""
    row = BizReceive.objects.select_related("biz", "receive").get(pk=subscription(biz).pk)
    before = from_row(row)
    for part, names in zip((row, row.receive, row.biz), directory.COLUMNS.values(), strict=True):
        for field in type(part)._meta.concrete_fields:
            if field.column not in names and not field.primary_key:
                setattr(part, field.attname, changed(field, getattr(part, field.attname)))
    assert from_row(row) == before


# -- turns ---------------------------------------------------------------------------------------
def test_a_turn_looks_at_those_that_have_deliveries(
    biz: Biz, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(dispatcher, "FEW", 3)
    monkeypatch.setattr(dispatcher, "WHOLE_SECONDS", 3600.0)
    settings.NOTIFY_LEASE_SECONDS = 3600
    rows = kinds(biz, 6)
    maker = Maker()
    maker.turn()
    with CaptureQueriesContext(connection) as context:
        assert maker.dispatcher.due() == []
    assert len(context) == 0, "nothing waits for any of them"
    # Redis refuses nothing, but there is no room: the split leaves them to the dispatcher.
    publish(biz, 1, event_type="kind.2")
    maker.splitter.split(None, None)
    (backlog,) = maker.dispatcher.due()
    assert backlog.subscription.id == rows[2].pk
    # Another program's delivery is found by the next look at all.
    publish(biz, 1, event_type="kind.4")
    Maker().splitter.split(None, None)
    assert [each.subscription.id for each in maker.dispatcher.due()] == [rows[2].pk]
    maker.dispatcher.look_at_all()
    due = {each.subscription.id for each in maker.dispatcher.due()}
    assert due == {rows[2].pk, rows[4].pk}


def test_empty_queues_are_not_asked(biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_MAX_UNFILTERED", 2)
    rows = kinds(biz, 5)
    names = [orders.queue_name(biz.pk, row.receive_id) for row in rows]
    assert jobs.with_orders(names[:2]) == names[:2]
    assert jobs.with_orders(names) == []
    jobs.put(names[3], [{"n": 1}], 60)
    jobs.put("crm-main-sales", [{"n": 1}], 60)
    assert jobs.with_orders(names) == [names[3]]
    claimed = jobs.claim(names[3], 60)
    recovery.recover(is_only_copy=lambda _name: False)
    assert jobs.with_orders(names) == [names[3]], "an order that is claimed counts"
    assert claimed
    jobs.remove_orders([claimed])
    recovery.recover(is_only_copy=lambda _name: False)
    assert jobs.with_orders(names) == []
