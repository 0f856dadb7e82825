"""The alerts of SMS that stay open as long as a condition holds, and the findings of `doctor`.

sms.gateway   no sender has had a connection to a gateway for a minute
sms.replicas  fewer replicas than SMS_REPLICAS have been connected to the SMS Redis for 10 s
sms.failing   every message of SMS_FAILING_MINUTES failed at a gateway: it is connected, and useless

One daemon of the platform asks for them (`monitor/watch`), so that no program of SMS is needed
for an alert about its own end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Q, Sum
from django.utils.translation import gettext_noop as _

from gateway import presence, replicas
from gateway.directory import Directory
from gateway.models import SgipMt, SmsGateway
from gateway.monitor.counters import FLOW
from gateway.monitor.failures import GATEWAY
from gateway.presence import LinkState
from msgplatform.core import outbound
from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from msgplatform.core.flows.health import Finding, Runbook
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import MinuteCounter
from msgplatform.monitor.alert_store import AlertTable, open_conditions, unless_away

OUTAGE, FAILING = "sms.gateway", "sms.failing"
KINDS = (OUTAGE, FAILING, replicas.MISSING)
# Seconds; longer than a restart of either side. Meanwhile messages wait or take another way.
OUTAGE_SECONDS = 60.0
MIN_FAILED = 10  # minimum of messages: two wrong numbers need no person
_Final = SgipMt.Final
_GOOD = (_Final.DELIVERED, _Final.ACCEPTED)
_shortage = replicas.Shortage()
_directory = Directory()


def conditions() -> Iterator[Condition]:
    """The conditions that hold now. Raises errors of the database."""
    yield from _failing()
    yield from unless_away(_outages, OUTAGE)
    yield from unless_away(_shortage.conditions, replicas.MISSING)


# -- no connection -------------------------------------------------------------------------------
def _outages() -> Iterator[Condition]:
    """Gateways without a connection. A gateway that cannot be used has an alert of its own. While
    nothing may leave the platform no connection is expected: alerts stay as they are."""
    if outbound.is_off():
        yield from open_conditions(Q(kind=OUTAGE))
        return
    _directory.refresh(at_once=True)
    states = presence.live()
    connected_ids = presence.connected_gateways(states)
    down_ids = [id for id in _directory.known.gateways if id not in connected_ids]
    open_keys = AlertTable().open_keys(OUTAGE)
    for id, seconds in sorted(presence.outages.note(down_ids).items()):
        gateway, key = _directory.known.gateways[id], f"{OUTAGE}:{id}"
        # An outage with an alert is not over because its beginning is unknown.
        if seconds < OUTAGE_SECONDS and key not in open_keys:
            continue
        problems = _problems(gateway.id, states)
        why = "; ".join(problems) or lazy_message("no sender serves it")
        if not problems and gateway.row.own_process:
            why = lazy_message(
                "run_sms_sender --gateway %(name)s is not running", name=gateway.name
            )
        yield Condition.of(
            key,
            _("No connection to the gateway %(name)s"),
            _("%(where)s: %(why)s. Messages without an alternative gateway wait."),
            name=gateway.name,
            where=gateway.row.address,
            why=why,
        )


def _problems(gateway: int, states: Iterable[LinkState]) -> list[str]:
    """Why senders have no connection to a gateway, as they report it."""
    return sorted({s.problem for s in states if s.gateway == gateway and s.problem})


def examine() -> Iterator[Finding]:
    """Findings about the replicas of the Redis, and one for each gateway: whether it is connected.
    May raise errors of the database and of Redis."""
    yield from replicas.examine()
    states = presence.live()
    connected_ids = presence.connected_gateways(states)
    gateways = SmsGateway.objects.filter(enabled=True).order_by("name")
    for pk, name in gateways.values_list("id", "name"):
        if pk in connected_ids:
            yield Finding("ok", f"SMS: the gateway {name} is connected")
            continue
        why = "; ".join(_problems(pk, states)) or "no sender serves it"
        yield Finding(
            "bad", f"SMS: no connection to the gateway {name}: {why}",
            "compare host, port and our login with the operator's; see that run_sms_sender runs",
        )  # fmt: skip


# -- every message fails -------------------------------------------------------------------------
def _failing() -> Iterator[Condition]:
    """Gateways at which every message failed, by the pump's counters, which count a message when it
    is archived. A single message that was delivered, or accepted without a Report to come, ends the
    condition."""
    minutes = settings.SMS_FAILING_MINUTES
    if not minutes:
        return
    # Include the whole minute in which the window begins: a window may be shorter than a minute.
    since = (sql.now() - timedelta(minutes=minutes)).replace(second=0, microsecond=0)
    rows = MinuteCounter.objects.filter(
        minute__gte=since, flow=FLOW, subject__lt=0, name__in=_Final.values
    )
    endings: dict[int, Counter[str]] = defaultdict(Counter)
    for subject, name, value in (
        rows.order_by().values_list("subject", "name").annotate(Sum("value"))
    ):
        endings[-subject][name] += value
    names = dict(SmsGateway.objects.filter(enabled=True, id__in=endings).values_list("id", "name"))
    for pk, name in sorted(names.items()):
        total = endings[pk].total()
        if total >= MIN_FAILED and not any(endings[pk][final] for final in _GOOD):
            yield Condition.of(
                f"{FAILING}:{pk}",
                _("Every message fails at the gateway %(name)s"),
                _(
                    "%(failed)d messages ended in the last %(minutes)s minutes, and none was "
                    "delivered."
                ),
                name=name,
                failed=total,
                minutes=f"{minutes:g}",
            )


_GATEWAYS = "admin:gateway_smsgateway_changelist"
# Where to act on the alerts; `runbooks.md` beside this file says what to do.
RUNBOOKS: Mapping[str, Runbook] = {
    "sms.gateway": GATEWAY.runbook(severity="critical"),
    "sms.failures": Runbook("console:failures"),
    "sms.failing": GATEWAY.runbook(),
    "sms.gateway_settings": GATEWAY.runbook(),
    "sms.account_settings": Runbook(
        "admin:gateway_smsaccount_change", takes_subject=True, model="gateway.SmsAccount"
    ),
    "sms.archive": Runbook("console:overview"),
    "sms.event": Runbook("console:overview"),
    "sms.mo": Runbook(_GATEWAYS),
    "sms.report": Runbook(_GATEWAYS),
    "sms.stranger": Runbook(_GATEWAYS, severity="info"),
    "sms.login": Runbook(_GATEWAYS, severity="info"),
    "sms.replicas": Runbook("console:overview", severity="critical"),
    "sms.retention": Runbook("console:overview"),
}
RUNBOOK_TEXTS = Path(__file__).with_name("runbooks.md")
