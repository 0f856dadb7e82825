"""Messages as Redis keeps them: with all that a Submit needs, so that no sender asks a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

# An ending is replaced only by one of a higher rank (as in scripts/common.lua): an uncertain ending
# by a certain one, never the other way round.
RANK = {"unknown": 1, "expired": 2, "failed": 3, "delivered": 3, "accepted": 3}


class Mt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to one recipient, as intake took it in; never changed afterwards.

    Names are those of SGIP where it has them. Times are unix seconds, 0: none. `key` is the
    caller's idempotency key, `call` the id that all messages of one call share. `trace` is the
    `traceparent` of a message that is traced.
    """

    id: str
    biz: int
    account: int
    user_number: str
    text: str
    sp_number: str
    corp_id: str
    gateways: list[int]
    service_type: str = ""
    charge_number: str = ""
    fee_type: int = 1
    fee_value: str = "0"
    given_value: str = "0"
    agent_flag: int = 0
    morelateto_mt_flag: int = 2
    priority: int = 0
    report_flag: int = 1
    signature: str = ""
    # The reference of a long text, set when the text is stored: all its parts and their repeats
    # have the same one.
    udh_reference: int = 0
    schedule_at: float = 0.0
    expire_at: float = 0.0
    key: str = ""
    reference: str = ""
    trace: str = ""

    @property
    def pack(self) -> tuple[Any, ...]:
        """The properties of a Submit: messages with equal ones share a Submit."""
        # All fields of a Submit but the recipient, and the signature, which decides the cuts.
        return (
            self.text, self.sp_number, self.corp_id, self.service_type, self.charge_number,
            self.fee_type, self.fee_value, self.given_value, self.agent_flag,
            self.morelateto_mt_flag, self.priority, self.report_flag, self.signature,
            self.expire_at, self.udh_reference,
        )  # fmt: skip


decode_mt = msgspec.json.Decoder(Mt).decode


class ClaimedMessage(msgspec.Struct, frozen=True):
    """A pending message that a sender has claimed.

    `part_numbers` are the parts to send (empty: all), `max_users` bounds its Submit's users (0:
    no bound). If other parts were sent before, the text had `parts` of them, cut by `ascii_limit`
    (0: by a version that did not note it).
    """

    mt: Mt
    part_numbers: tuple[int, ...]
    max_users: int
    tries: int
    parts: int = 0
    ascii_limit: int = 0


class WaitingMessage(msgspec.Struct, frozen=True):
    """A pending message that no sender has claimed. `position` counts the messages before it in the
    list of its `priority`. `was_sent`: its gateway may have taken it, so that it stays there."""

    mt: Mt
    was_sent: bool
    priority: int
    position: int


class Member(msgspec.Struct, frozen=True):
    """A recipient of a Submit."""

    id: str
    user_number: str


class NewSubmit(msgspec.Struct, frozen=True):
    """A Submit about to be written: `seqno` and `ts` are the sequence's third and second word. Its
    text was cut into `parts` by the gateway's `ascii_limit`."""

    seqno: int
    ts: int
    node: int
    part: int
    parts: int
    frame: bytes
    members: list[Member]
    ascii_limit: int = 0

    @property
    def name(self) -> str:
        return f"{self.seqno}:{self.ts}"


class Response(msgspec.Struct, frozen=True):
    """A Submit_Resp and what it means: `accepted`, `again` after `delay` seconds, `refused`,
    `unanswered` (it says nothing of what was written before), or `used` (accepted if the same bytes
    went out again, else refused)."""

    name: str
    result: int
    verdict: str
    delay: float = 0.0


class ReportIn(msgspec.Struct, frozen=True):
    """A Report as the gateway sent it; `user_number` in the form in which Submits carry it.

    `gateways` are those on whose messages it may report (none: one of an older version, any).
    """

    seqno: int
    ts: int
    node: int
    user_number: str
    state: int
    error: int
    at: float = 0.0  # unix seconds
    gateways: list[int] = []


class Mo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message from a handset, or (`kind` "userrpt") a change of a user's state."""

    id: str
    kind: str = "mo"
    gateway: int = 0
    biz: int = 0  # the owner, found by the forwarder; 0: none
    account: int = 0
    user_number: str
    sp_number: str
    text: str = ""
    content: bytes = b""
    message_coding: int = 0
    tp_pid: int = 0
    tp_udhi: int = 0
    parts: int = 1
    missing: int = 0  # number of parts that did not come in time
    user_condition: int = 0
    sequence: str = ""
    at: float = 0.0  # when the MO, or the first part of a long one, came


class Sent(msgspec.Struct, frozen=True):
    """A Submit of a message's part: the three words of its sequence are node, ts, seqno."""

    part: int
    node: int
    ts: int
    seqno: int


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A message as read.lua returns it, in this order. Missing texts are '', missing numbers 0.

    `submits` are "part/node/seqno:ts …", `results` of responses "part/result …", `reports`
    "part/state:error:time …", `refusals` those of parts that are to be sent again. Events of
    endings that were announced before (announce.lua) are JSON. `event_id` is that of the event that
    has its ending beside others, `published` the ending that was published.
    """

    msg: str
    state: str
    final: str
    error: str
    gateway: int
    parts: int
    accepted_at: float
    submitted_at: float
    responded_at: float
    ended_at: float
    submits: str
    results: str
    reports: str
    refusals: str
    unknown_event: str
    expired_event: str
    event_id: int
    published: str


# Redis keeps numbers as texts.
_decode_row = msgspec.msgpack.Decoder(Row, strict=False).decode


class Finished(msgspec.Struct, frozen=True):
    """A message with all that became of it: the fields of `mt:%s` beside `msg`, and its Reports.

    `reported_at` is the time of the last Report once it has ended, 0 without a Report.
    `results` and `reports` go by part: the last response, and (state, error, unix time). `sent` are
    all its Submits in order; the last Submit of a part counts. `announced` are the
    payloads of the events of endings that may have been published before this one. `refused` are
    the parts that were to be sent again, with the result for which. `event_id` is that of the event
    that has its ending beside those of others. `is_published`: its ending was published.
    """

    mt: Mt
    state: str
    final: str
    error: str
    gateway: int
    parts: int
    accepted_at: float
    submitted_at: float
    responded_at: float
    reported_at: float
    ended_at: float
    results: dict[int, int]
    reports: dict[int, tuple[int, int, float]]
    sent: list[Sent]
    announced: dict[str, bytes] = {}
    refused: dict[int, int] = {}
    event_id: int | None = None
    is_published: bool = False

    @property
    def id(self) -> str:
        return self.mt.id

    @property
    def fact_count(self) -> int:
        """The number of known facts about the message. No fact is ever taken back: a greater number
        means that more is known."""
        return len(self.sent) + len(self.results) + len(self.reports)

    @classmethod
    def of_row(cls, packed: bytes) -> Finished:
        """The message of a row of read.lua."""
        row = _decode_row(packed)
        reports: dict[int, tuple[int, int, float]] = {}
        for part, report in _by_part(row.reports):
            state, report_error, at = report.split(":")
            reports[part] = int(state), int(report_error), float(at)
        submits = []
        for token in row.submits.split():
            part_number, node, name = token.split("/")
            seqno, ts = name.split(":")
            submits.append(Sent(int(part_number), int(node), int(ts), int(seqno)))
        events = ("unknown", row.unknown_event), ("expired", row.expired_event)
        return cls(
            mt=decode_mt(row.msg),
            state=row.state,
            final=row.final,
            error=row.error,
            gateway=row.gateway,
            parts=row.parts,
            accepted_at=row.accepted_at,
            submitted_at=row.submitted_at,
            responded_at=row.responded_at,
            reported_at=max((at for *_, at in reports.values()), default=0.0) if row.final else 0.0,
            ended_at=row.ended_at,
            results={part: int(result) for part, result in _by_part(row.results)},
            reports=reports,
            sent=submits,
            announced={final: event.encode() for final, event in events if event},
            refused={part: int(result) for part, result in _by_part(row.refusals)},
            event_id=row.event_id or None,
            is_published=bool(row.final) and row.published == row.final,
        )

    @property
    def answers(self) -> dict[int, int]:
        """The gateway's answer to the last Submit of each part."""
        return {**self.refused, **self.results}


def _by_part(text: str) -> Iterator[tuple[int, str]]:
    """Pairs of a text "part/value …"."""
    for token in text.split():
        part, _, value = token.partition("/")
        yield int(part), value
