"""Statistics by event type: counted where messages are split and where they end, and bounded."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db.models import Sum
from django.test import Client

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http.messages import Response
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.models import Biz, MinuteCounter
from msgplatform.models.counters import WHOLE
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery, total
from notify import orders, presence
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.models import BizReceive, EventType, ReceiveMsg
from notify.monitor import counters
from notify.monitor.activity import ACTIVITY
from notify.monitor.counters import CatalogueSubjects
from notify.orders import Order, Result
from notify.presence import LaneState
from notify.sender import webhook
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import old_maker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PAID, SENT, UNKNOWN = "order.paid", "order.sent", "order.of_no_catalogue"
OTHERS = "not in the catalogue"
BY_EVENT_TYPE = next(one for one in ACTIVITY.dimensions if one.name == "event_type")


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), schedule=[])


def counted(**chosen: object) -> CounterQuery:
    now = sql.now()
    wanted = {name: str(key) for name, key in chosen.items()}
    return CounterQuery(
        ACTIVITY, "minute", now - timedelta(minutes=5), now + timedelta(minutes=1), wanted
    )


def shown(wanted: CounterQuery) -> dict[str, tuple[int, ...]]:
    """Accepted, delivered, failed attempts and failures of each event type, by its title."""
    lines = groups.table(wanted, BY_EVENT_TYPE, groups.sums(wanted))
    return {
        line.group.title: tuple(measure.of(line.counts) for measure in ACTIVITY.measures)
        for line in lines
    }


def split() -> None:
    maker = old_maker()
    while maker.turn():
        pass


def answered(row: BizReceive, status: dict[str, int]) -> list[Result]:
    """What a sender makes of the orders that wait: the status by the event type in the body."""
    results = []
    while claimed := jobs.claim(orders.queue_name(row.biz_id, row.receive_id), 30):
        order: Any = msgspec.convert(claimed.data, Order)
        for item in order.items:
            answer = status.get(msgspec.json.decode(item.body)["type"], 200)
            response = Response(None, answer, b"", b"", 0.1, "", "", "")  # type: ignore[arg-type]
            results.append(webhook.answer(order, item, response, answer == 200, 1e9))
        jobs.remove_orders([claimed])
    return results


def test_what_became_of_each_event_type(row: BizReceive) -> None:
    other = subscription(Biz.objects.create(name="stock"), schedule=[])
    EventType.objects.create(name=PAID)
    EventType.objects.create(name=SENT, biz=row.biz)
    for of, event_type, number in (
        (row, PAID, 2), (row, SENT, 2), (row, UNKNOWN, 1), (other, SENT, 1)
    ):  # fmt: skip
        publish(of.biz, number, event_type=event_type)
    split()
    marker = Marker()
    for results in (answered(row, {SENT: 503}), answered(other, {})):
        marker.mark(results)
        marker.mark(results)  # as after one that was killed
    assert shown(counted()) == {
        f"{row.biz}: {SENT}": (2, 0, 2, 2), PAID: (2, 2, 0, 0), OTHERS: (2, 2, 0, 0),
    }  # fmt: skip
    assert next(iter(shown(counted()))) == f"{row.biz}: {SENT}", "what lost most comes first"
    assert shown(counted(system=other.biz_id)) == {OTHERS: (1, 1, 0, 0)}


def test_each_message_counts_once_however_it_is_grouped(row: BizReceive) -> None:
    own = EventType.objects.create(name=PAID)
    publish(row.biz, 3)
    publish(row.biz, 2, event_type=UNKNOWN)
    split()
    Marker().mark(answered(row, {}))
    whole = total(counted().series())
    assert (whole["accepted"], whole["delivered"]) == (5, 5)
    minutes = MinuteCounter.objects.filter(WHOLE, name="delivered").aggregate(sum=Sum("value"))
    assert counters.totals()["delivered"] == minutes["sum"] == 5
    for dimension in ACTIVITY.dimensions:
        header, *lines = groups.csv_lines(counted(), dimension)
        assert sum(int(line[header.index("delivered")]) for line in lines) == 5, dimension.name
    assert total(counted(event_type=own.pk).series())["delivered"] == 3
    assert total(counted(event_type="others").series())["delivered"] == 2
    with pytest.raises(InvalidInput):  # of both together nothing is counted
        counted(event_type=own.pk, subscription=row.pk).series()
    own.delete()
    assert set(shown(counted())) == {str(-min_subject()), OTHERS}, "it keeps its counts"


def min_subject() -> int:
    """The subject of the only event type that was in the catalogue."""
    found = MinuteCounter.objects.filter(subject__lt=0, subject__gt=-(2**62))
    (subject,) = found.order_by().values_list("subject", flat=True).distinct()
    return int(subject)


def test_failures_behind_an_open_breaker(row: BizReceive) -> None:
    EventType.objects.create(name=PAID)
    publish(row.biz, 3)
    publish(row.biz, 2, event_type=UNKNOWN)
    Maker().splitter.split()
    past = sql.now() - timedelta(hours=2)
    ReceiveMsg.objects.update(next_at=past)
    BizReceive.objects.update(failing_since=past)
    presence.report({row.pk: LaneState(sender="s", breaker=State.OPEN, retry_in=60)})
    split()
    assert ReceiveMsg.objects.filter(status=ReceiveMsg.Status.EXHAUSTED).count() == 5
    assert shown(counted()) == {PAID: (3, 0, 0, 3), OTHERS: (2, 0, 0, 2)}


def test_there_are_as_many_counters_as_entries(row: BizReceive) -> None:
    shared, own = EventType(name=PAID), EventType(name=PAID, biz=row.biz)
    shared.save()
    own.save()
    event_types = CatalogueSubjects()
    event_types.refresh()
    assert event_types.subject(row.biz_id, PAID) == -own.pk, "goes before a shared one"
    assert event_types.subject(row.biz_id + 1, PAID) == -shared.pk
    assert len({event_types.subject(row.biz_id, f"{PAID}.{n}") for n in range(100)}) == 1


def test_the_page(row: BizReceive, admin_client: Client) -> None:
    own = EventType.objects.create(name=PAID)
    publish(row.biz, 3)
    publish(row.biz, 2, event_type=UNKNOWN)
    split()
    Marker().mark(answered(row, {PAID: 500}))
    answer = admin_client.get("/console/statistics?flow=notify")
    (table,) = (t for t in answer.context["tables"] if str(t.heading) == "Event type")
    assert [one.title for one in table.rows] == [PAID, OTHERS]
    assert table.rows[0].page == f"/admin/notify/eventtype/{own.pk}/change/"
    assert "all others together" in answer.content.decode()
    alone = admin_client.get(table.rows[1].url)
    assert dict(alone.context["numbers"])["delivered"] == 2
    assert f'<option value="{own.pk}"' in alone.content.decode()
    unknown = admin_client.get("/console/statistics?flow=notify&event_type=999999")
    assert unknown.context["form"].errors
