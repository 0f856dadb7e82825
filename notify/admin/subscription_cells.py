"""Cells of the subscriptions' list and card."""

from __future__ import annotations

from django.urls import reverse
from django.utils import formats, timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.core.durations import age
from msgplatform.doors.admin.cells import NOTHING, link, mark, moment, nothing, percent
from notify.admin.health import COUNTED, Busy, Health, is_failing
from notify.directory import waits
from notify.models import BizReceive
from notify.subscriptions import limits

_Status = BizReceive.Status
# Tone and short name of a status that says all; the long name is the cell's tooltip.
_STATES = {
    _Status.PAUSED: ("warn", _("paused")),
    _Status.SKIPPING: ("warn", _("skipping held")),
    _Status.DISCARDED: ("plain", _("discarded")),
    _Status.DISABLED: ("bad", _("disabled")),
}
# The share of accepted attempts below which the number is marked.
_POOR = 0.95


def status(row: BizReceive, health: Health, why: str) -> SafeString:
    """Its state: its status, or else the state of its deliveries."""
    set_to = _STATES.get(_Status(row.status))
    if set_to:
        return mark(str(set_to[1]), set_to[0], str(_Status(row.status).label), below=why)
    if row.receive.is_listened and health.waiting:
        return mark(gettext("waits for a listener"), "plain")
    if is_failing(row) or (health.live and health.live.is_open):
        return mark(gettext("failing"), "bad")
    if row.failing_since:
        return mark(gettext("retrying"), "warn")
    if health.busy:
        return mark(gettext("busy"), "warn", below=busy(row, health.busy))
    if health.waiting or health.delivered:
        return mark(gettext("delivering"), "good")
    return mark(gettext("idle"), "plain", gettext("Nothing waits, nothing was sent lately."))


def busy(row: BizReceive, state: Busy) -> str:
    """A sentence: since when deliveries wait for a slot, how fast it goes, and for how long."""
    numbers = {
        "open": state.in_flight,
        "limit": row.in_flight_limit,
        "since": formats.date_format(state.since, "H:i"),
        "rate": f"{state.per_minute:.0f}" if state.per_minute >= 1 else f"{state.per_minute:.1f}",
        "left": age(state.left_seconds),
    }
    if state.left_seconds is None:
        text = gettext("%(open)d of %(limit)d slots, busy since %(since)s, %(rate)s a minute")
    else:
        text = gettext(
            "%(open)d of %(limit)d slots, busy since %(since)s, %(rate)s a minute, about %(left)s "
            "left"
        )
    return text % numbers


def failures(health: Health) -> str:
    """Their number, linked to the page Failures."""
    if not health.failures:
        return NOTHING
    return link(reverse("console:failures"), f"{health.failures:,}")


def breaker(health: Health) -> str:
    if not health.is_known:
        return gettext("unknown")
    if health.live is None or not health.live.is_open:
        return NOTHING if health.live is None else nothing(gettext("closed"))
    probe = formats.date_format(timezone.localtime(health.probe_at), "H:i:s")
    return mark(gettext("open, probe %s") % probe, "bad")


def success(health: Health) -> str:
    if health.rate is None:
        return NOTHING
    title = gettext("%(delivered)d accepted, %(failed)d refused or failed") % {
        "delivered": health.delivered,
        "failed": health.failed,
    }
    return mark(percent(health.rate), "bad" if health.rate < _POOR else "plain", title)


def failing(row: BizReceive) -> str:
    if row.failing_since is None:
        return NOTHING
    since = age((timezone.now() - row.failing_since).total_seconds())
    return mark(
        gettext("%(age)s, %(count)d in a row") % {"age": since, "count": row.failures},
        "bad" if is_failing(row) else "warn",
        moment(row.failing_since),
    )


def waiting(health: Health) -> str:
    if health.waiting >= COUNTED:
        return gettext("%d or more") % COUNTED
    return str(health.waiting) if health.waiting else nothing("0")


def due(health: Health) -> str:
    return NOTHING if health.due_seconds is None else age(health.due_seconds)


def patience(row: BizReceive) -> str:
    """A sentence: after how many attempts a delivery fails for good, by the stored schedule."""
    schedule = waits(row.schedule, row.attempts_limit)
    numbers = {
        "attempts": len(schedule) + 1,
        "span": age(sum(schedule)),
        "keep": age(limits.breaker_keep(schedule)),
    }
    if not schedule:
        end_text = gettext("A delivery is given up after one attempt.")
    else:
        end_text = gettext(
            "A delivery is given up after %(attempts)d attempts, about %(span)s after the first."
        )
    breaker_text = gettext(
        "While the breaker is open, deliveries wait for at least %(keep)s, though nothing is tried."
    )
    return f"{end_text} {breaker_text}" % numbers


def in_flight(row: BizReceive, health: Health) -> str:
    if not health.is_known:
        return gettext("unknown")
    open_now = health.live.in_flight if health.live else 0
    text = f"{open_now} / {row.in_flight_limit}"
    return text if open_now else nothing(text)
