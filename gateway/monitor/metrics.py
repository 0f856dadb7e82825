"""The present state of SMS, for the overview and `/metrics`: counts that Redis has ready."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.utils.translation import gettext as _, gettext_noop

from gateway import presence
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SmsGateway
from gateway.presence import LinkState
from msgplatform.core import outbound
from msgplatform.core.data import chunks
from msgplatform.core.flows.health import Status, Wait
from msgplatform.core.flows.metric import Metrics, Sample
from msgplatform.core.flows.text import ViewLink
from msgplatform.core.lazy_text import lazy_message

_PRIORITIES = range(10)
# Read the front of a list, where the oldest are; only messages that came back stand before them.
_MAX_READ = 1000
_READ_AT_ONCE = 100  # usually the first portion is enough
# Messages between the gateways and the archive: name → (kind of key, key) whose sizes add up.
_STAGES = {
    "awaiting_response": [("scard", keys.SUBMITED)],
    "awaiting_report": [("scard", keys.RESPONSE_SUCC)],
    "unpublished": [("llen", keys.LIST_REPORT), ("zcard", keys.REPORTING)],
    "unarchived": [("llen", keys.LIST_FINISH), ("zcard", keys.FINISHING)],
    "mo_unpublished": [("llen", keys.LIST_MO), ("zcard", keys.MO_REPORTING)],
    "mo_unarchived": [("llen", keys.LIST_MO_FINISH), ("zcard", keys.MO_FINISHING)],
    "reports_unmatched": [("llen", keys.LIST_UNMATCHED), ("zcard", keys.UNMATCHED)],
}
_OURS = ("unpublished", "unarchived", "mo_unpublished", "mo_unarchived")


class Queue(msgspec.Struct, frozen=True):
    """The messages of a gateway: pending, claimed by senders, not due yet.

    `oldest_at` is when the oldest of the pending and claimed was due, in unix seconds by Redis'
    clock.
    """

    gateway: SmsGateway
    pending: int
    claimed: int
    scheduled: int
    oldest_at: float | None

    @property
    def oldest_seconds(self) -> float | None:
        """How long the oldest message has been due."""
        # The clock of this machine may be a little behind Redis' clock.
        return None if self.oldest_at is None else max(0.0, time.time() - self.oldest_at)


class _Schedule(msgspec.Struct):
    """The part of a message that says when it was to be sent."""

    schedule_at: float = 0.0


_decode_schedule = msgspec.json.Decoder(_Schedule).decode


class Gauges(msgspec.Struct, frozen=True):
    queues: list[Queue]
    stages: dict[str, int]
    links: list[LinkState]
    accepted: int
    received: int

    def link_counts(self) -> Counter[tuple[int, str]]:
        """The numbers of connections that work, by gateway and kind."""
        return Counter((s.gateway, s.kind) for s in self.links if not s.problem)


def read_gauges() -> Gauges:
    """Raises RedisError, and what an unavailable database raises."""
    gateways = list(SmsGateway.objects.order_by("name"))
    client = sms_redis()
    with client.pipeline(transaction=False) as pipe:
        for parts in _STAGES.values():
            for kind, key in parts:
                getattr(pipe, kind)(key)
        pipe.mget(keys.MT_COUNT, keys.MO_COUNT)
        *sizes, totals = pipe.execute()
    # The answers have the order of the questions.
    values = iter(sizes)
    stages = {name: sum(next(values) for _part in parts) for name, parts in _STAGES.items()}
    return Gauges(
        [_queue(client, gateway) for gateway in gateways], stages, presence.live(),
        int(totals[0] or 0), int(totals[1] or 0),
    )  # fmt: skip


def _queue(client: Any, gateway: SmsGateway) -> Queue:
    """A scheduled message that is due counts as pending: a sender's next claim or look moves it."""
    names = [keys.pending(gateway.pk, priority) for priority in _PRIORITIES]
    scheduled_key, now = keys.scheduled(gateway.pk), time.time()
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(name)
            pipe.lrange(name, -_MAX_READ, -1)
        pipe.zrange(keys.claimed(gateway.pk), 0, -1)
        pipe.zcard(scheduled_key)
        pipe.zcount(scheduled_key, "-inf", now)
        pipe.zrange(scheduled_key, 0, 0, withscores=True)
        *lists, claimed_ids, scheduled_count, due_count, first_scheduled = pipe.execute()
    pending_ids = {int(id) for members in (*lists[1::2], claimed_ids) for id in members}
    times = [at for _id, at in first_scheduled if at <= now]
    # Ids grow with time, and no message is due before it is accepted: read only messages that were
    # accepted before the oldest known time.
    for page in chunks(sorted(pending_ids), _READ_AT_ONCE):
        with client.pipeline(transaction=False) as message_pipe:
            for id in page:
                message_pipe.hmget(keys.mt(id), "accepted_at", "msg")
            rows = [(float(at), msg) for at, msg in message_pipe.execute() if at and msg]
        times += [max(at, _decode_schedule(msg).schedule_at) for at, msg in rows]
        if rows and min(times) <= rows[-1][0]:
            break
    return Queue(
        gateway, sum(lists[::2]) + due_count, len(claimed_ids), scheduled_count - due_count,
        min(times, default=None),
    )  # fmt: skip


def waits() -> Iterator[Wait]:
    """The oldest message at each gateway, including gateways that are switched off."""
    for queue in read_gauges().queues:
        if queue.oldest_at is not None:
            since = datetime.fromtimestamp(queue.oldest_at, UTC)
            text = gettext_noop("A message for the gateway %(name)s")
            yield Wait(str(queue.gateway.pk), lazy_message(text, name=str(queue.gateway)), since)


def status() -> Status:
    """Messages that wait for us are backlog. Messages that wait for a Report are a fact."""
    gauges = read_gauges()
    waiting = sum(queue.pending + queue.claimed for queue in gauges.queues)
    ages = {
        str(queue.gateway.pk): age
        for queue in gauges.queues
        if (age := queue.oldest_seconds) is not None
    }
    facts: dict[str, int | float | str] = {}
    bad: dict[str, ViewLink] = {}
    has_several = sum(queue.gateway.enabled for queue in gauges.queues) > 1
    link_counts = gauges.link_counts()
    for queue in gauges.queues:
        if queue.gateway.enabled:
            if has_several:  # a single one is the backlog
                facts[_("pending for %s") % queue.gateway] = queue.pending + queue.claimed
            links, name = link_counts[queue.gateway.pk, "submit"], _("links of %s") % queue.gateway
            facts[name] = links or _("down")
            if not links:
                bad[name] = ViewLink("admin:gateway_smsgateway_change", (queue.gateway.pk,))
    facts |= {
        _("not due yet"): sum(queue.scheduled for queue in gauges.queues),
        _("without a response"): gauges.stages["awaiting_response"],
        _("awaiting their Reports"): gauges.stages["awaiting_report"],
        _("not archived yet"): gauges.stages["unarchived"] + gauges.stages["mo_unarchived"],
    }
    filled_facts = {name: value for name, value in facts.items() if value}
    backlog = waiting + sum(gauges.stages[name] for name in _OURS)
    oldest = max(ages.values(), default=None)
    return Status(backlog, oldest, filled_facts, bad=bad, oldest_by=ages)


# -- /metrics ------------------------------------------------------------------------------------
METRICS = Metrics()
_PENDING = METRICS.gauge("sms_pending", "Messages that wait for a sender", "gateway")
_CLAIMED = METRICS.gauge("sms_claimed", "Messages that a sender has claimed", "gateway")
_SCHEDULED = METRICS.gauge("sms_scheduled", "Messages that are not due yet", "gateway")
_OLDEST = METRICS.gauge(
    "sms_oldest_pending_seconds",
    "How long the oldest message that is pending or claimed has been due",
    "gateway",
)
_ENABLED = METRICS.gauge(
    "sms_gateway_enabled", "1 while a gateway is switched on, and OUTBOUND too", "gateway"
)
_LINKS = METRICS.gauge(
    "sms_links",
    "Connections that are bound, by kind: submit (ours to the gateway), report (its to us)",
    *("gateway", "kind"),
)
_STAGE = METRICS.gauge(
    "sms_messages", "Messages between their gateway and the archive, by what they wait for", "stage"
)
_ACCEPTED = METRICS.counter("sms_accepted", "Messages accepted")
_RECEIVED = METRICS.counter("sms_received", "MOs received")


def samples() -> Iterator[Sample]:
    """The samples for `/metrics`. Raises what `read_gauges` raises."""
    gauges = read_gauges()
    link_counts = gauges.link_counts()
    for queue in gauges.queues:
        gateway = queue.gateway.name
        yield _PENDING.of(queue.pending, gateway=gateway)
        yield _CLAIMED.of(queue.claimed, gateway=gateway)
        yield _SCHEDULED.of(queue.scheduled, gateway=gateway)
        yield _OLDEST.of(queue.oldest_seconds or 0.0, gateway=gateway)
        yield _ENABLED.of(queue.gateway.enabled and not outbound.is_off(), gateway=gateway)
        for kind in ("submit", "report"):
            yield _LINKS.of(link_counts[queue.gateway.pk, kind], gateway=gateway, kind=kind)
    for name, value in gauges.stages.items():
        yield _STAGE.of(value, stage=name)
    yield _ACCEPTED.of(gauges.accepted)
    yield _RECEIVED.of(gauges.received)
