"""Notify's findings for `doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models import Q

from msgplatform.core.data import sql
from msgplatform.core.durations import age
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.health import Finding
from notify import presence
from notify.models import BizReceive, EventType
from notify.monitor import metrics
from notify.monitor.conditions import describe

_SHOWN = 20  # of each kind; more need not be listed to say that there are many
_PATIENCE = timedelta(minutes=1)


def examine() -> Iterator[Finding]:
    """Failing, disabled and late subscriptions, and unusable schemas. May raise errors of the
    database and of Redis."""
    from msgplatform.core.json import schema as json_schema  # programs load the module without it

    rows = BizReceive.objects.select_related("biz", "receive").only(
        "disabled_reason", "failing_since", "failures", "status", "biz__name", "biz__title",
        "receive__name", "receive__title",
    )  # fmt: skip
    is_open = [pk for pk, state in presence.read().items() if state.is_open]
    now = sql.now()
    for_long = Q(failing_since__lte=now - _PATIENCE)
    is_failing = for_long | Q(failing_since__isnull=False, id__in=is_open)
    # Those without attempts: disabled ones are listed, the others were stopped by a person.
    failing_rows = rows.filter(is_failing).exclude(status__in=BizReceive.STOPPED)
    failing = list(failing_rows.order_by("id")[: _SHOWN + 1])
    texts = describe(failing[:_SHOWN], now)
    for row in failing[:_SHOWN]:
        yield Finding(
            "bad", f"Notify: {row}: {texts[row.pk]}",
            "see its last answers on the subscription's page in the console",
        )  # fmt: skip
    if len(failing) > _SHOWN:
        yield Finding("bad", f"Notify: more than {_SHOWN} subscriptions fail")
    for row in rows.filter(status=BizReceive.Status.DISABLED).order_by("id")[:_SHOWN]:
        yield Finding(
            "bad", f"Notify: {row} is disabled: {row.disabled_reason or 'no reason is known'}",
            "repair the consumer, then resume the subscription in the console",
        )  # fmt: skip
    if not failing:
        yield Finding("ok", "Notify: no subscription fails")
    # The consumers of these work, but deliveries wait for longer than an alert.
    minutes = settings.ALERT_BACKLOG_MINUTES
    ages = metrics.oldest(metrics.read_waiting(), sql.now()) if minutes else []
    late = [(old, w) for old, w in ages if old >= minutes * 60 and w.row.pk not in is_open]
    for seconds, wait in late[:_SHOWN]:
        names = "{biz} → {consumer}".format(**wait.labels)
        speed = ""
        if (live := wait.live) and live.busy_for:
            per_minute = 60 * live.busy_per_second
            speed = f", {live.in_flight} requests are open, {per_minute:.0f} a minute are answered"
        yield Finding(
            "warn", f"Notify: a delivery for {names} has waited for {age(seconds)}{speed}",
            "if the consumer bears more, raise the subscription's in-flight or rate limit",
        )  # fmt: skip
    # An earlier release may have accepted a schema that this one cannot use.
    for event_type in EventType.objects.filter(schema__isnull=False).order_by("id").iterator():
        try:
            json_schema.compiled(event_type.schema or {})
        except InvalidInput as error:
            yield Finding(
                "bad", f"Notify: the JSON Schema of {event_type} cannot be used: {error}",
                "correct it in the catalogue of event types; until then the events of this type "
                "are refused for systems that validate their events",
            )  # fmt: skip
