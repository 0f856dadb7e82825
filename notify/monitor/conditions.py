"""Alerts about subscriptions, as conditions: a subscription is disabled, fails, or misses its own
process; the findings of `doctor`, with the same text about failures; and the pages for alerts.

The watch of any running program reads the conditions every few seconds
(`monitor/watch/of_flows.py`), so an alert comes even if the marker or every sender is down.
Conditions follow from stored rows: resuming a subscription resolves its alerts.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core.alerts import Condition, moment
from msgplatform.core.data import sql
from msgplatform.core.data.counting import count_up_to
from msgplatform.core.durations import age, lazy_age
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.health import Finding, Runbook
from msgplatform.core.lazy_text import lazy_message, load
from msgplatform.monitor.alert_store import AlertTable, unless_away
from msgplatform.monitor.failure_groups import latest_answer, lazy_answer
from notify import presence
from notify.models import BizReceive, EventType, Receive, ReceiveMsg
from notify.monitor import metrics
from notify.monitor.counters import FLOW
from notify.monitor.failures import answer
from notify.monitor.subjects import DELIVER_NOW, SUBSCRIPTION
from notify.subscriptions import limits, sandbox

DISABLED, FAILING, OWN_PROCESS = "notify.disabled", "notify.failing", "notify.own_process"
KINDS = (DISABLED, FAILING, OWN_PROCESS)
# Seconds for which a process of a subscription's own may be missing: longer than a restart.
PATIENCE_SECONDS = 60.0
MAX_DESCRIBED = 100  # subscriptions with a text; more have a common cause
MAX_COUNTED = 10_000  # waiting deliveries of one subscription
_MAX_LOOKED_AT = 20  # deliveries, to find the last answer
# The number of findings of each kind that `doctor` lists.
_MAX_SHOWN = 20
_PATIENCE = timedelta(minutes=1)  # before `doctor` says that a subscription fails
_Status, _Delivery = BizReceive.Status, ReceiveMsg.Status
_WAITING = f"status IN ({int(_Delivery.PENDING)}, {int(_Delivery.QUEUED)}) AND biz_receive_id = %s"
# Deliveries to an engineer's own machine call nobody.
_NAMED = BizReceive.named_rows().defer("filter", "schedule", "event_types", "channels")
_PUSHED = _NAMED.exclude(receive__delivery=Receive.Delivery.LISTEN)


def conditions() -> Iterator[Condition]:
    """A condition for every subscription that needs a person. Raises errors of the database."""
    now = sql.now()
    is_reported = Q(status=_Status.DISABLED)
    if after := limits.failing_alert_after():
        is_failing = Q(failing_since__lte=now - after, failures__gte=metrics.MIN_FAILURES)
        is_reported |= Q(status__in=BizReceive.ACTIVE) & is_failing
    query = _PUSHED.filter(is_reported).order_by("id")
    # A sandbox fails because somebody has set it to fail, so it is no alert.
    rows = [row for row in query if not sandbox.is_sandbox(row.receive.url)]
    texts = describe([row for row in rows if row.status != _Status.DISABLED], now)
    for row in rows:
        if row.status == _Status.DISABLED:
            reason = load(row.disabled_said or row.disabled_reason)
            text = _(
                "The reason: %(why)s. Its deliveries wait; resume it in the console to send them."
            )
            yield Condition.of(
                f"{DISABLED}:{row.pk}",
                _("The subscription %(name)s was disabled"),
                text,
                name=str(row),
                why=reason or lazy_message("no reason is known"),
            )
        elif row.failing_since:
            subject = lazy_message("The subscription %(name)s is failing", name=str(row))
            text = texts.get(row.pk) or lazy_message(
                "Every attempt since %(since)s failed, %(failures)d in a row.",
                since=moment(row.failing_since),
                failures=row.failures,
            )
            if hours := settings.NOTIFY_DISABLE_AFTER_HOURS:
                text = lazy_message(
                    "%(text)s If that goes on, it will be disabled on %(end)s.",
                    text=text,
                    end=moment(row.failing_since + timedelta(hours=hours)),
                )
            yield Condition(f"{FAILING}:{row.pk}", subject, text)
    yield from unless_away(_of_missing_processes, OWN_PROCESS)


def _of_missing_processes() -> Iterator[Condition]:
    """Subscriptions that have a process of their own, and none runs."""
    rows = _PUSHED.filter(own_process=True, status__in=BizReceive.ACTIVE).order_by("id")
    names = {row.pk: str(row) for row in rows}
    missing_for = presence.missing_processes.note(set(names) - presence.dedicated_subscriptions())
    # A flush of Redis empties the memory: an alert that is open stays open.
    open_keys = AlertTable().open_keys(OWN_PROCESS)
    subject = _("No sender delivers for the subscription %(name)s")
    text = _(
        "It has a process of its own, and none runs: its deliveries wait. Start run_sender "
        "--subscription %(id)d, or switch off its own process in the console."
    )
    for pk, seconds in sorted(missing_for.items()):
        key = f"{OWN_PROCESS}:{pk}"
        if seconds >= PATIENCE_SECONDS or key in open_keys:
            yield Condition.of(key, subject, text, id=pk, name=names[pk])


# -- the text about a failing subscription -------------------------------------------------------
def describe(rows: Sequence[BizReceive], now: datetime) -> dict[int, str]:
    """Subscription id → text, for the first MAX_DESCRIBED failing subscriptions of `rows`. Costs a
    bounded number of indexed reads for each."""
    rows = [row for row in rows if row.failing_since][:MAX_DESCRIBED]
    counts = count_up_to("receive_msg", _WAITING, [[row.pk] for row in rows], MAX_COUNTED)
    lanes = presence.read_if_available() or {}
    texts: dict[int, str] = {}
    for row, count in zip(rows, counts, strict=True):
        assert row.failing_since  # noqa: S101 - the others were left out above
        text = lazy_message(
            "Has failed for %(age)s: %(answer)s, %(failures)d in a row.",
            age=lazy_age((now - row.failing_since).total_seconds()),
            answer=lazy_answer(_last_answer(row.pk))
            or lazy_message("the last answer is not known"),
            failures=row.failures,
        )
        if count:
            deliveries = ReceiveMsg.objects.filter(
                status__in=ReceiveMsg.WAITING, biz_receive_id=row.pk
            ).order_by("status", "biz_receive_id", "next_at")
            # The oldest delivery is among the first by time of attempt: both times grow with ids.
            times = deliveries.values_list("created_at", flat=True)[:_MAX_LOOKED_AT]
            oldest = min(times, default=None)
            text = lazy_message(
                "%(text)s Deliveries that wait: %(count)s, the oldest for %(age)s.",
                text=text,
                count=f"{count:,}" if count < MAX_COUNTED else f"{count:,}+",
                age=lazy_age((now - oldest).total_seconds() if oldest else None),
            )
        lane = lanes.get(row.pk)
        if lane and lane.is_open:
            at = timezone.localtime(now + timedelta(seconds=lane.retry_in))
            text = lazy_message(
                "%(text)s Next probe at %(at)s.", text=text, at=at.strftime("%H:%M:%S")
            )
        texts[row.pk] = text
    return texts


def _last_answer(subscription: int) -> str:
    """The latest answer to a delivery that is retried, else to a failure; '' without an answer."""
    rows = ReceiveMsg.objects.filter(status=_Delivery.PENDING, biz_receive_id=subscription)
    # The delivery with the latest attempt is due last. Behind an open breaker some had no attempt.
    latest_rows = rows.order_by("-status", "-biz_receive_id", "-next_at")
    values = latest_rows.values_list("updated_at", "http_status", "error")[:_MAX_LOOKED_AT]
    if answers := [row for row in values if row[1] or row[2]]:
        _at, http_status, error = max(answers)
        return answer(_Delivery.PENDING, http_status, error)
    return latest_answer(FLOW, subscription)


# -- findings of `doctor` -------------------------------------------------------------------------
def examine() -> Iterator[Finding]:
    """Failing, disabled and late subscriptions, and unusable schemas. May raise errors of the
    database and of Redis."""
    from msgplatform.core.json import schema as json_schema  # programs load the module without it

    open_ids = [pk for pk, state in presence.read().items() if state.is_open]
    now = sql.now()
    is_failing_long = Q(failing_since__lte=now - _PATIENCE)
    is_failing = is_failing_long | Q(failing_since__isnull=False, id__in=open_ids)
    # Without stopped subscriptions: disabled subscriptions have findings of their own.
    rows = _NAMED.filter(is_failing).exclude(status__in=BizReceive.STOPPED)
    failing_rows = list(rows.order_by("id")[: _MAX_SHOWN + 1])
    texts = describe(failing_rows[:_MAX_SHOWN], now)
    for row in failing_rows[:_MAX_SHOWN]:
        yield Finding(
            "bad", f"Notify: {row}: {texts[row.pk]}",
            "see its last answers on the subscription's page in the console",
        )  # fmt: skip
    if len(failing_rows) > _MAX_SHOWN:
        yield Finding("bad", f"Notify: more than {_MAX_SHOWN} subscriptions fail")
    for row in _NAMED.filter(status=_Status.DISABLED).order_by("id")[:_MAX_SHOWN]:
        yield Finding(
            "bad", f"Notify: {row} is disabled: {row.disabled_reason or 'no reason is known'}",
            "repair the consumer, then resume the subscription in the console",
        )  # fmt: skip
    if not failing_rows:
        yield Finding("ok", "Notify: no subscription fails")
    # Subscriptions that do not fail, with deliveries that wait for longer than the alert allows.
    minutes = settings.ALERT_BACKLOG_MINUTES
    ages = metrics.longest_waits(metrics.read_waiting(), sql.now()) if minutes else []
    late_waits = [
        (seconds, wait)
        for seconds, wait in ages
        if seconds >= minutes * 60 and wait.row.pk not in open_ids
    ]
    for seconds, wait in late_waits[:_MAX_SHOWN]:
        names = "{biz} → {consumer}".format(**wait.labels)
        speed = ""
        if (lane := wait.lane) and lane.busy_for:
            per_minute = 60 * lane.busy_per_second
            speed = f", {lane.in_flight} requests are open, {per_minute:.0f} a minute are answered"
        yield Finding(
            "warn", f"Notify: a delivery for {names} has waited for {age(seconds)}{speed}",
            "if the consumer bears more, raise the subscription's in-flight or rate limit",
        )  # fmt: skip
    # A stored schema may be one that this release cannot use.
    for event_type in EventType.objects.filter(schema__isnull=False).order_by("id").iterator():
        try:
            json_schema.compile_schema(event_type.schema or {})
        except InvalidInput as error:
            yield Finding(
                "bad", f"Notify: the JSON Schema of {event_type} cannot be used: {error}",
                "correct it in the catalogue of event types; until then the events of this type "
                "are refused for systems that validate their events",
            )  # fmt: skip


# Where to act on the alerts; `runbooks.md` beside this file says what to do.
RUNBOOKS: Mapping[str, Runbook] = {
    "notify.failing": SUBSCRIPTION.runbook(DELIVER_NOW),
    "notify.failures": Runbook("console:failures", model=SUBSCRIPTION.model),
    "notify.disabled": SUBSCRIPTION.runbook(),
    "notify.subscription": SUBSCRIPTION.runbook(),
    "notify.own_process": SUBSCRIPTION.runbook(),
    "notify.poison": Runbook("console:failures", severity="critical"),
    "notify.clock": Runbook("console:overview"),
    "notify.archive": Runbook("console:overview"),
    "notify.retention": Runbook("console:overview"),
    "notify.keys.retention": Runbook("console:overview"),
}
RUNBOOK_TEXTS = Path(__file__).with_name("runbooks.md")
