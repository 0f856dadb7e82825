"""Alerts about subscriptions, as conditions: one is disabled, fails, or has no process of its own.

The watch of any running program asks for them every few seconds (`core/daemons/watch/of_flows.py`),
so an alert comes even if the marker or every sender is down. They follow from stored rows: an
operator who resumes a subscription resolves its alerts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from msgplatform.core.lazy_text import lazy_message, load
from msgplatform.models import Alert
from notify import presence
from notify.models import BizReceive
from notify.monitor import outages
from notify.subscriptions import limits

DISABLED, FAILING, OWN_PROCESS = "notify.disabled", "notify.failing", "notify.own_process"
KINDS = (DISABLED, FAILING, OWN_PROCESS)
# Failures in a row: the first wait of a schedule is short, so a second failure comes soon.
MIN_FAILURES = 2
# Seconds for which a process of a subscription's own may be missing: longer than a restart.
PATIENCE_SECONDS = 60.0
_Status = BizReceive.Status
_ACTIVE = (_Status.NORMAL, _Status.SKIPPING)
# The columns that an alert needs; secrets and headers are not read for that.
_COLUMNS = (
    "status", "failing_since", "failures", "disabled_reason", "disabled_said",
    "biz__name", "biz__title", "receive__name", "receive__title",
)  # fmt: skip


def conditions() -> Iterator[Condition]:
    """A condition for every subscription that needs a person. Raises errors of the database and
    of Redis."""
    yield from _of_failures(sql.now())
    yield from _of_missing_processes()


def _of_failures(now: datetime) -> Iterator[Condition]:
    """Subscriptions that are disabled, or have failed for NOTIFY_FAILING_MINUTES."""
    is_reported = Q(status=_Status.DISABLED)
    if after := limits.failing_alert_after():
        is_failing = Q(failing_since__lte=now - after, failures__gte=MIN_FAILURES)
        is_reported |= Q(status__in=_ACTIVE) & is_failing
    query = BizReceive.objects.filter(is_reported).select_related("biz", "receive")
    rows = list(query.order_by("id").only(*_COLUMNS))
    texts = outages.describe([row for row in rows if row.status != _Status.DISABLED], now)
    for row in rows:
        if row.status == _Status.DISABLED:
            reason = load(row.disabled_said or row.disabled_reason)
            text = _(
                "The reason: %(why)s. Its deliveries wait; resume it in the console to send them."
            )
            yield Condition(
                f"{DISABLED}:{row.pk}",
                lazy_message(_("The subscription %(name)s was disabled"), name=str(row)),
                lazy_message(text, why=reason or lazy_message(_("no reason is known"))),
            )
        elif row.failing_since:
            subject = lazy_message(_("The subscription %(name)s is failing"), name=str(row))
            text = texts.get(row.pk) or lazy_message(
                _("Every attempt since %(since)s failed, %(failures)d in a row."),
                since=moment(row.failing_since),
                failures=row.failures,
            )
            yield Condition(f"{FAILING}:{row.pk}", subject, _with_end(text, row.failing_since))


def _with_end(text: str, failing_since: datetime) -> str:
    """The text, and when the platform will disable the subscription, if it does."""
    hours = settings.NOTIFY_DISABLE_AFTER_HOURS
    if not hours:
        return text
    return lazy_message(
        _("%(text)s If that goes on, it will be disabled on %(end)s."),
        text=text,
        end=moment(failing_since + timedelta(hours=hours)),
    )


def _of_missing_processes() -> Iterator[Condition]:
    """Subscriptions that have a process of their own, and none runs."""
    rows = BizReceive.objects.filter(own_process=True, status__in=_ACTIVE).order_by("id")
    missing_ids = set(rows.values_list("id", flat=True)) - presence.dedicated_subscriptions()
    missing_for = presence.note_missing_processes(missing_ids)
    # A flush of Redis empties the memory: an alert that is open stays open.
    open_keys = set(
        Alert.objects.filter(open_key__startswith=f"{OWN_PROCESS}:").values_list("key", flat=True)
    )
    subject = _("Nobody delivers for the subscription %(id)d")
    text = _(
        "It has a process of its own, and none runs: its deliveries wait. Start run_sender "
        "--subscription %(id)d, or switch off its own process in the console."
    )
    for pk, seconds in sorted(missing_for.items()):
        key = f"{OWN_PROCESS}:{pk}"
        if seconds >= PATIENCE_SECONDS or key in open_keys:
            yield Condition(key, lazy_message(subject, id=pk), lazy_message(text, id=pk))


def moment(at: datetime) -> str:
    """A time as alerts write it."""
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M %Z")
