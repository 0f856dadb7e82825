"""How SMS stands right now, for the overview and `/metrics`: counts that Redis has at hand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from gateway import presence
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SmsGateway
from gateway.presence import LinkState
from msgplatform.core.data.chunks import chunks
from msgplatform.core.flows import Sample, Status, Wait

_PRIORITIES = range(10)
# The front of a list, where the oldest are: what is scheduled and tried again goes before them.
_LOOKED_AT = 1000
_READ_AT_ONCE = 100  # as a rule the first portion is enough
# What stands between the gateways and the archive: name → (kind of key, key) whose sizes add up.
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


@dataclass(frozen=True)
class Queue:
    """One gateway's: messages pending, held by senders, not due yet; when the oldest of those that
    are pending or held was due, in unix seconds by Redis' clock."""

    gateway: SmsGateway
    pending: int
    claimed: int
    scheduled: int
    oldest_at: float | None

    @property
    def oldest_seconds(self) -> float | None:
        """How long it has been due."""
        # This machine's clock may be a little behind that of Redis.
        return None if self.oldest_at is None else max(0.0, time.time() - self.oldest_at)


class _Schedule(msgspec.Struct):
    """The part of a message that says when it was to be sent."""

    schedule_at: float = 0.0


_decode_schedule = msgspec.json.Decoder(_Schedule).decode


@dataclass(frozen=True)
class Gauges:
    queues: list[Queue]
    stages: dict[str, int]
    links: list[LinkState]
    accepted: int
    received: int

    def up(self, gateway: int, kind: str = "submit") -> int:
        """Connections of this kind that work."""
        return sum(
            1 for s in self.links if (s.gateway, s.kind) == (gateway, kind) and not s.problem
        )


def read() -> Gauges:
    """Raises RedisError, and what an unavailable database raises."""
    gateways = list(SmsGateway.objects.order_by("name"))
    client = sms_redis()
    with client.pipeline(transaction=False) as pipe:
        for parts in _STAGES.values():
            for kind, key in parts:
                getattr(pipe, kind)(key)
        pipe.mget(keys.MT_COUNT, keys.MO_COUNT)
        *sizes, totals = pipe.execute()
    # In the order in which they were asked.
    values = iter(sizes)
    stages = {name: sum(next(values) for _part in parts) for name, parts in _STAGES.items()}
    return Gauges(
        [_queue(client, gateway) for gateway in gateways], stages, presence.live(),
        int(totals[0] or 0), int(totals[1] or 0),
    )  # fmt: skip


def _queue(client: Any, gateway: SmsGateway) -> Queue:
    """A message that is scheduled and due counts as pending: the next claim of a sender moves
    it."""
    names = [keys.pending(gateway.pk, priority) for priority in _PRIORITIES]
    scheduled_key, now = keys.scheduled(gateway.pk), time.time()
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(name)
            pipe.lrange(name, -_LOOKED_AT, -1)
        pipe.zrange(keys.claimed(gateway.pk), 0, -1)
        pipe.zcard(scheduled_key)
        pipe.zcount(scheduled_key, "-inf", now)
        pipe.zrange(scheduled_key, 0, 0, withscores=True)
        *lists, claimed, scheduled, due, first = pipe.execute()
    waiting = {int(message) for found in (*lists[1::2], claimed) for message in found}
    times = [at for _message, at in first if at <= now]
    if (oldest := _oldest(client, sorted(waiting))) is not None:
        times.append(oldest)
    return Queue(
        gateway, sum(lists[::2]) + due, len(claimed), scheduled - due, min(times, default=None)
    )


def _oldest(client: Any, messages: Sequence[int]) -> float | None:
    """When the first of these was due. Ids grow with time, nothing is due before it is accepted:
    no more are read than were accepted before the oldest that is known."""
    oldest: float | None = None
    for some in chunks(messages, _READ_AT_ONCE):
        with client.pipeline(transaction=False) as pipe:
            for message in some:
                pipe.hmget(keys.mt(message), "accepted_at", "msg")
            rows = [(float(at), msg) for at, msg in pipe.execute() if at and msg]
        for accepted_at, msg in rows:
            due_at = max(accepted_at, _decode_schedule(msg).schedule_at)
            oldest = due_at if oldest is None else min(oldest, due_at)
        if oldest is not None and rows and oldest <= rows[-1][0]:
            break
    return oldest


def waits() -> Iterator[Wait]:
    """The oldest message at each gateway, also at one that is switched off."""
    for queue in read().queues:
        if queue.oldest_at is not None:
            since = datetime.fromtimestamp(queue.oldest_at, UTC)
            text = _("A message for the gateway %s") % queue.gateway
            yield Wait(str(queue.gateway.pk), text, since)


def status() -> Status:
    """Backlog is what waits for us; what waits for the operator (Reports) is a fact."""
    now = read()
    waiting = sum(queue.pending + queue.claimed for queue in now.queues)
    ages = [queue.oldest_seconds for queue in now.queues if queue.oldest_seconds is not None]
    facts: dict[str, int | float | str] = {}
    for queue in now.queues:
        if queue.gateway.enabled:
            facts[_("pending for %s") % queue.gateway] = queue.pending + queue.claimed
            facts[_("links of %s") % queue.gateway] = now.up(queue.gateway.pk) or _("down")
    facts |= {
        _("not due yet"): sum(queue.scheduled for queue in now.queues),
        _("without a response"): now.stages["awaiting_response"],
        _("awaiting their Reports"): now.stages["awaiting_report"],
        _("not archived yet"): now.stages["unarchived"] + now.stages["mo_unarchived"],
    }
    shown = {name: value for name, value in facts.items() if value}
    backlog = waiting + sum(now.stages[name] for name in _OURS)
    return Status(backlog, max(ages, default=None), shown)


def samples() -> Iterator[Sample]:
    """For `/metrics`. Raises what `read` raises."""
    now = read()
    bound = Counter((s.gateway, s.kind) for s in now.links if not s.problem)
    for queue in now.queues:
        labels = {"gateway": queue.gateway.name}
        yield Sample("sms_pending", queue.pending, labels, "Messages that wait for a sender")
        yield Sample("sms_claimed", queue.claimed, labels, "Messages in a sender's hands")
        yield Sample("sms_scheduled", queue.scheduled, labels, "Messages that are not due yet")
        yield Sample(
            "sms_oldest_pending_seconds", queue.oldest_seconds or 0.0, labels,
            "How long the oldest message that is pending or in a sender's hands has been due",
        )  # fmt: skip
        for kind in ("submit", "report"):
            yield Sample(
                "sms_links", bound[queue.gateway.pk, kind], {**labels, "kind": kind},
                "Connections that are bound",
            )  # fmt: skip
    for name, value in now.stages.items():
        yield Sample("sms_stage", value, {"stage": name}, "Messages in each stage after sending")
    yield Sample("sms_accepted_total", now.accepted, {}, "Messages ever accepted", "counter")
    yield Sample("sms_received_total", now.received, {}, "MOs ever received", "counter")
