"""MTs in Redis: each step one script, for hundreds of messages, repeatable.

    accept ─▶ pending ── submit ──▶ submitted ── respond: accepted ──▶ responded
                 ▲                    │    │                               │ report, end_overdue
                 └─ respond: again ◀──┘    │ respond: refused; report      ▼
                 │                         └───────────────────────────▶ reported ─ finish_published
                 └─ end: expired, cannot be sent ─────────────────────────▲  ─▶ archived, forget

Silence ends it too: `repeat` after the last try without a response, `end_overdue` without a Report.
How it ended is in `final` (messages.RANK): a higher ending replaces a lower one until `forget`.
Nothing here knows SGIP's meaning of a result: the caller decides whether a response is accepted, to
be tried again or a refusal. Every function raises RedisError when Redis is unavailable; those that
wait for replicas (accept, first_calls, next_seqnos, submit, repeat, report) also raise what
`scripts.run_replicated` raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings

from gateway.connections import sms_redis
from gateway.lifecycle import keys, scripts
from gateway.lifecycle.messages import (
    ClaimedMessage,
    Finished,
    Mt,
    NewSubmit,
    ReportIn,
    Response,
    decode_mt,
)

if TYPE_CHECKING:
    from msgplatform.core.tracing.spans import Span


class Allowance(msgspec.Struct, frozen=True):
    """The counter of a day's messages, and how far it may count."""

    counter: str
    limit: int


class Call(msgspec.Struct, frozen=True):
    """The messages of one call, one for each recipient, under one idempotency key or none.

    A call that duplicates an earlier call of the same `accept` needs no messages. `long_from` is
    the SP number of a text with several parts: all its messages get the number's next reference, so
    that they share Submits. `span` is that of a call that is traced.
    """

    messages: Sequence[Mt]
    biz: int = 0
    idempotency_key: str = ""
    payload_hash: str = ""
    allowance: Allowance | None = None
    long_from: str = ""
    span: Span | None = None


class Lease(msgspec.Struct, frozen=True):
    """Entries of the set `key` that the caller has until `until`. No other lease ends then."""

    entries: list[str]
    key: str
    until: float


class FirstCall(msgspec.Struct):
    """The first call with a key: the hash of its payload, and its messages' ids."""

    hash: str
    ids: list[str]


class OverLimit(msgspec.Struct):
    """The day has no room for a call: the call was neither stored nor counted."""


# -- intake --------------------------------------------------------------------------------------
def accept(calls: Sequence[Call], idempotency_seconds: int) -> list[FirstCall | OverLimit | None]:
    """Store calls; returns None for a new call, else the first call with its key, or OverLimit."""
    unkeyed_ids = (mt.id for call in calls if not call.idempotency_key for mt in call.messages)
    first_id = next(unkeyed_ids, "")
    run_key = keys.accepted(first_id) if first_id else ""
    arguments: list[scripts.Argument] = [idempotency_seconds, len(calls), run_key]
    for call in calls:
        key = keys.idempotency(call.biz, call.idempotency_key) if call.idempotency_key else ""
        day = call.allowance or Allowance("", 0)
        arguments += [
            key, call.payload_hash, day.counter, day.limit, call.long_from, len(call.messages),
        ]  # fmt: skip
        for mt in call.messages:
            arguments += [
                mt.id, mt.gateways[0], mt.priority, mt.report_flag, mt.schedule_at,
                msgspec.json.encode(mt),
            ]  # fmt: skip
    # One script for all calls: with `appendfsync always`, one wait for the disk.
    return [
        OverLimit() if answer == b"limit"
        else msgspec.json.decode(answer, type=FirstCall) if answer else None
        for answer in scripts.run_replicated("accept", arguments)
    ]  # fmt: skip


def first_calls(call_keys: Sequence[tuple[int, str]]) -> list[FirstCall | None]:
    """The first call with each (system, idempotency key), None if there was none."""
    names = [keys.idempotency(biz, key) for biz, key in call_keys]
    rows: Any = sms_redis().mget(names) if names else ()
    if settings.SMS_REPLICAS and any(rows):
        # The call is known here although its outcome was unknown; perhaps no replica has it.
        scripts.run_replicated("replicate", [])
    return [msgspec.json.decode(row, type=FirstCall) if row else None for row in rows]


# -- sender --------------------------------------------------------------------------------------
def claim(gateway: int, holder: str, limit: int, lease: float) -> list[ClaimedMessage]:
    """Pending messages of a gateway, the most urgent first, leased for `lease` seconds."""
    flat = scripts.run("claim", [gateway, holder, limit, lease])
    return [
        ClaimedMessage(
            _with_reference(decode_mt(flat[i + 1]), int(flat[i + 7] or 0)),
            tuple(sorted({int(part) for part in flat[i + 2].split()})),
            int(flat[i + 3] or 0),
            int(flat[i + 4]),
            int(flat[i + 5] or 0),
            int(flat[i + 6] or 0),
        )
        for i in range(0, len(flat), 8)
    ]


def _with_reference(mt: Mt, reference: int) -> Mt:
    return msgspec.structs.replace(mt, udh_reference=reference) if reference else mt


def next_seqnos(count: int) -> range:
    """The next `count` counters, which no other caller gets; they wrap at 32 bits."""
    last = int(scripts.run_replicated("seqnos", [count], [keys.SEQNO]))
    return range(last - count + 1, last + 1)


def submit(
    gateway: int,
    holder: str,
    submits: Sequence[NewSubmit],
    patience: float,
    report_wait: float = 0.0,
) -> list[NewSubmit]:
    """Remember Submits before they are written; returns the Submits that may be written now.

    All parts of a message that are to be sent come in one call. A Submit may not be written when
    another sender has the lease of a member, or a member has ended. After `report_wait` seconds
    (0: never) `end_overdue` ends the messages, also when their gateway is gone and no sender
    repeats them.
    """
    arguments: list[scripts.Argument] = [gateway, holder, patience, report_wait, len(submits)]
    for new in submits:
        users = {member.user_number: member.id for member in new.members}
        arguments += [
            new.seqno, new.ts, new.node, new.part, new.parts, new.ascii_limit, new.frame,
            msgspec.json.encode(users), len(new.members), *(member.id for member in new.members),
        ]  # fmt: skip
    answers = scripts.run_replicated("submit", arguments)
    return [new for new, may_write in zip(submits, answers, strict=True) if may_write]


def respond(responses: Sequence[Response], max_tries: int) -> list[str]:
    """Apply Submit_Resps: `done`, `repeated`, `unanswered` or `unknown` for each."""
    arguments: list[scripts.Argument] = [max_tries]
    for response in responses:
        arguments += [response.name, response.result, response.verdict, response.delay]
    return [outcome.decode() for outcome in scripts.run("respond", arguments)]


def repeat(gateway: int, patience: float, max_repeats: int, count: int) -> list[tuple[str, bytes]]:
    """Pairs (name, frame) of Submits without an answer, to be written again byte for byte."""
    if settings.SMS_REPLICAS:
        # Wait for the replicas before a try is counted: without them no Submit is handed out.
        scripts.run_replicated("replicate", [])
    flat = scripts.run_replicated("due", [gateway, patience, max_repeats, count])
    return [(flat[i].decode(), flat[i + 1]) for i in range(0, len(flat), 2)]


def has_work(gateway: int) -> bool:
    """True if messages of a gateway could be sent now, or Submits be repeated."""
    return bool(scripts.run("waits", [gateway]))


def end(gateway: int, holder: str, endings: Iterable[tuple[str, str, str]]) -> int:
    """End claimed messages that are not sent: (id, final, error)."""
    flat = [value for ending in endings for value in ending]
    return int(scripts.run("end", [gateway, holder, *flat])) if flat else 0


def release(gateway: int, holder: str, ids: Sequence[str]) -> int:
    """Give claimed messages back."""
    return int(scripts.run("release", [gateway, holder, *ids])) if ids else 0


# -- receiver ------------------------------------------------------------------------------------
def report(reports: Sequence[ReportIn]) -> list[str]:
    """Apply Reports. The result of each is `matched`, `waiting`, `repeated`, `unmatched` or
    `foreign` (from a gateway that did not get the Submit). All are safe then."""
    arguments: list[scripts.Argument] = []
    for report_in in reports:
        arguments += [
            f"{report_in.seqno}:{report_in.ts}", report_in.node, report_in.user_number,
            report_in.state, report_in.error,
            " ".join(["", *map(str, report_in.gateways), ""]) if report_in.gateways else "",
            msgspec.json.encode(report_in),
        ]  # fmt: skip
    return [outcome.decode() for outcome in scripts.run_replicated("report", arguments)]


def end_overdue(count: int) -> int:
    """End messages that waited too long: for a Report as `unknown`, or with report flag 0 as
    `accepted`; for a gateway as `failed`. Returns their number."""
    return int(scripts.run("overdue", [count]))


# -- forwarder and pump --------------------------------------------------------------------------
def take(source: str, lease_key: str, limit: int, seconds: float) -> Lease:
    """Move entries of a list into its leased set for `seconds`. If leases have expired, the entries
    of one of them are taken instead. `is_leased` says later if the caller still has the lease."""
    until, entries = scripts.run("take", [limit, seconds], [source, lease_key])
    return Lease([entry.decode() for entry in entries], lease_key, float(until))


def is_leased(lease: Lease, entries: Sequence[str]) -> bool:
    """True if the caller still has all of these entries: nobody took one over or finished it."""
    # No two leases end at the same microsecond: the score tells who has an entry.
    scores: Any = sms_redis().zmscore(lease.key, list(entries)) if entries else ()
    return all(score == lease.until for score in scores)


def announce(endings: Mapping[str, tuple[str, bytes]]) -> dict[str, bytes]:
    """Note that these endings (id → final, payload) are about to be published. Returns the payload
    to publish for each, b"" for a message that has another ending by now."""
    flat = [value for id, ending in endings.items() for value in (id, *ending)]
    return dict(zip(endings, scripts.run("announce", flat), strict=True)) if flat else {}


def finish_published(endings: Mapping[str, str], events: Mapping[str, int] | None = None) -> int:
    """Move messages whose ending was published (id → final) on to the archive; returns how many.
    `events` has the event of each ending that shares one.

    A message whose ending changed meanwhile is to be published again.
    """
    events = events or {}
    flat = [part for id, final in endings.items() for part in (id, final, events.get(id, ""))]
    lists = [keys.REPORTING, keys.LIST_REPORT, keys.LIST_FINISH]
    return int(scripts.run("published", flat, lists)) if flat else 0


def pass_on(lease_key: str, target: str, entries: Sequence[str]) -> int:
    """Move entries from the leased set to the next list, each once."""
    return int(scripts.run("pass_on", list(entries), [lease_key, target])) if entries else 0


def drop(lease_key: str, entries: Sequence[str]) -> None:
    """Remove these entries from the leased set: nothing follows them."""
    if entries:
        sms_redis().zrem(lease_key, *entries)


def read(ids: Sequence[str]) -> list[Finished]:
    """Messages with all that became of them, without messages that are gone."""
    rows = scripts.run("read", list(ids)) if ids else ()
    return [Finished.of_row(row) for row in rows if row]


def scan(cursor: int, count: int) -> tuple[int, list[tuple[Mt, str]]]:
    """A step of a walk through all messages, which looks at about `count` keys: the next cursor, 0
    at the end, and messages with their endings."""
    client: Any = sms_redis()
    following, names = client.scan(cursor, match=keys.MT_PATTERN, count=count)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hmget(name, "msg", "final")
        rows = pipe.execute()
    return int(following), [(decode_mt(mt), (final or b"").decode()) for mt, final in rows if mt]


def forget(messages: Iterable[Finished]) -> set[str]:
    """Delete all keys of messages that were archived as they were read; the ids that are gone.

    A message whose ending changed meanwhile stays: it will be published and archived once more. A
    message with newer facts, such as the Report of another part, stays too.
    """
    flat = [value for m in messages for value in (m.id, m.final, str(m.fact_count))]
    return {id.decode() for id in scripts.run("forget", flat)} if flat else set()
