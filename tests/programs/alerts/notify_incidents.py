"""Incidents of Notify."""

from datetime import timedelta
from typing import Any

from msgplatform.core.data import ids, sql
from msgplatform.models import Biz, FailureGroup
from notify.models import BizReceive, Receive, ReceiveMsg
from tests.programs.alerts.incidents import Course, Places, incident, refuse
from tests.support.notify_rows import publish, subscription


def _subscribed(name: str, url: str, **fields: Any) -> BizReceive:
    biz = Biz.objects.create(name=name)
    Receive.objects.create(name=name, url=url)
    return subscription(biz, name, **fields)


@incident(
    "notify.failing",
    r"Has failed for .*: HTTP 503, \d+ in a row\. Deliveries that wait: 1,",
)
def a_consumer_is_busy(places: Places) -> Course:
    row = _subscribed("failing", places["busy"], schedule=[1] * 500)
    publish(row.biz)
    yield
    Receive.objects.filter(name="failing").update(url=places["well"])
    ReceiveMsg.objects.filter(biz_receive=row).update(next_at=sql.now())


@incident("notify.disabled", r"410 Gone.*deliveries wait")
def a_consumer_is_gone(places: Places) -> Course:
    row = _subscribed("disabled", places["gone"])
    publish(row.biz)
    yield
    Receive.objects.filter(name="disabled").update(url=places["well"])
    normal = {"status": BizReceive.Status.NORMAL, **BizReceive.RESUMED}
    BizReceive.objects.filter(pk=row.pk).update(**normal)


@incident("notify.failures", r"Messages: 2, since .*HTTP 503 \(2\)")
def deliveries_are_exhausted(places: Places) -> Course:
    row = _subscribed("exhausted", places["busy"], schedule=[])
    publish(row.biz, 2)
    yield
    FailureGroup.objects.filter(flow="notify").update(count=0)
    normal = {"status": BizReceive.Status.NORMAL, **BizReceive.RESUMED}
    BizReceive.objects.filter(pk=row.pk).update(**normal)


@incident("notify.subscription", r"could not convert.*deliveries wait")
def a_schedule_is_no_schedule(places: Places) -> Course:
    row = _subscribed("wrong", places["well"], schedule=["soon"])
    yield
    BizReceive.objects.filter(pk=row.pk).update(schedule=[])


@incident("notify.own_process", r"none runs: its deliveries wait")
def nobody_starts_its_process(places: Places) -> Course:
    row = _subscribed("alone", places["well"], own_process=True)
    publish(row.biz)
    yield
    BizReceive.objects.filter(pk=row.pk).update(own_process=False)


def broken_subscriptions() -> list[str]:
    """Subscriptions as the marker and operators leave them; the keys of their alerts."""
    failing = _subscribed("failing-alone", "http://127.0.0.1:9/")
    since = sql.now() - timedelta(hours=1)
    BizReceive.objects.filter(pk=failing.pk).update(failing_since=since, failures=9)
    disabled = _subscribed("disabled-alone", "http://127.0.0.1:9/")
    BizReceive.objects.filter(pk=disabled.pk).update(status=BizReceive.Status.DISABLED)
    own = _subscribed("own-alone", "http://127.0.0.1:9/", own_process=True)
    return [
        f"notify.failing:{failing.pk}",
        f"notify.disabled:{disabled.pk}",
        f"notify.own_process:{own.pk}",
    ]


def mended_subscriptions() -> None:
    normal = {"status": BizReceive.Status.NORMAL, "own_process": False, **BizReceive.RESUMED}
    BizReceive.objects.filter(receive__name__endswith="-alone").update(**normal)


@incident("notify.poison", r"cannot be sent: 1", is_for_person=True)
def a_message_is_gone(places: Places) -> Course:
    row = _subscribed("poison", places["well"])
    delivery, message = ids.reserve(2).ids([0, 0])
    now = dict.fromkeys(("next_at", "created_at", "updated_at"), sql.now())
    ReceiveMsg.objects.create(
        id=delivery, biz=row.biz, biz_receive=row, msg_id=message, **now
    )  # fmt: skip
    yield


@incident("notify.archive", r"read-only", is_for_person=True)
def the_archive_takes_no_message(places: Places) -> Course:
    row = _subscribed("archive", places["well"])
    allow = refuse("INSERT", "biz_msg_cold", "NEW.event_type = 'not.archived'")
    publish(row.biz, event_type="not.archived")
    yield
    allow()
