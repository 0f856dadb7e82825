"""Deliveries that were given up: a subscription's count for one alert, not an alert for each.

Whoever ends a delivery adds to its subscription's count in the same transaction; the alert follows
from what is stored. It stays open until a person marks it as resolved, until none of the deliveries
is left (sent again, or archived), or until none was given up for NOTIFY_GIVEN_UP_HOURS. A delivery
that is given up after that begins a new count, and a new alert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Case, Exists, F, Max, OuterRef, Q, Value, When
from django.db.models.functions import Least
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from msgplatform.core import alerts
from msgplatform.models import Alert
from notify.models import BizReceive, ReceiveMsg

KIND = "notify.given_up"
_MOST = 2**31 - 1
_NONE = {"given_up": 0, "given_up_since": None, "given_up_at": None}


def add(counts: Mapping[int, int], now: datetime) -> None:
    """Count deliveries that were given up, by subscription, in the caller's transaction."""
    is_new = Q(given_up_at=None) | Q(given_up_at__lt=now - _window())
    for subscription, count in sorted(counts.items()):
        total = Least(F("given_up") + count, _MOST)
        # MariaDB assigns in this order, and each expression sees what was assigned before it:
        # given_up_at, which decides, comes last.
        BizReceive.objects.filter(pk=subscription).update(
            given_up=Case(When(is_new, then=Value(count)), default=total),
            given_up_since=Case(When(is_new, then=Value(now)), default=F("given_up_since")),
            given_up_at=now,
        )


def reconcile_alerts(now: datetime) -> None:
    """Raise and resolve the alerts so that they say what is stored; not inside a transaction."""
    # `_conditions` is read after the open alerts: what is given up in between raises an alert, and
    # resolves none.
    alerts.reconcile([KIND], _conditions(now))


def _window() -> timedelta:
    return timedelta(hours=settings.NOTIFY_GIVEN_UP_HOURS)


def _conditions(now: datetime) -> Iterable[alerts.Condition]:
    """An alert for each subscription with given-up deliveries that nobody has looked at."""
    counted = BizReceive.objects.filter(given_up_at__isnull=False)
    left = ReceiveMsg.objects.filter(
        status=ReceiveMsg.Status.EXHAUSTED, biz_receive_id=OuterRef("pk")
    )
    rows = counted.annotate(is_left=Exists(left)).select_related("biz", "receive").order_by("id")
    rows = rows.only(
        "given_up", "given_up_since", "given_up_at",
        "biz__name", "biz__title", "receive__name", "receive__title",
    )  # fmt: skip
    found = list(rows)
    # When the last alert about each was resolved; none while one is open.
    about = Alert.objects.filter(key__in=[_key(row) for row in found]).order_by()
    last = about.values_list("key").annotate(Max("resolved_at"), Max("open_key"))
    seen = {key: at for key, at, opened in last if at and not opened}
    for row in found:
        at, since = row.given_up_at, row.given_up_since
        if at is None or since is None:
            continue
        resolved = seen.get(_key(row))
        if at < now - _window() or not row.is_left or (resolved and resolved >= at):
            # Nobody needs this count any more. The condition keeps one that was added just now.
            same = counted.filter(pk=row.pk, given_up_at=at, given_up=row.given_up)
            if same.update(**_NONE):
                continue
        yield _condition(row, since)


def _condition(row: BizReceive, since: datetime) -> alerts.Condition:
    text = ngettext(
        "%(count)d delivery was given up since %(since)s, and is not sent again by itself. See the "
        "last answers on the subscription's page, and send it again from there.",
        "%(count)d deliveries were given up since %(since)s, and are not sent again by themselves. "
        "See the last answers on the subscription's page, and send them again from there.",
        row.given_up,
    )
    shown = timezone.localtime(since).strftime("%Y-%m-%d %H:%M %Z")
    subject = _("Deliveries of the subscription %s were given up") % row
    return alerts.Condition(_key(row), subject, text % {"count": row.given_up, "since": shown})


def _key(row: BizReceive) -> str:
    return f"{KIND}:{row.pk}"
