"""Accept events: durable before the answer, one copy of each whatever is repeated.

`publish_many` is the one way in: the API, the gateway and the Agent end here. It answers an event
at a time (`created`, `duplicate`, `rejected`) and raises only when nothing is known about any of
them. `publish` is for single requests: requests of one process that arrive together share one
commit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from msgplatform.core.data import ids, sql
from msgplatform.core.data.group_commit import GroupCommit
from msgplatform.core.errors import InvalidInput
from msgplatform.core.failpoints import failpoint
from notify.models import BizMsg, IdempotencyKey

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_KEY_LENGTH = 128
_EVENT_TYPE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_CHANNEL = re.compile(r"[A-Za-z0-9_.:-]*")
_KEY = re.compile(r"[\x21-\x7e]+")
_LOOKUP = 100  # losers looked up per statement

Outcome = Literal["created", "duplicate", "rejected"]


@dataclass(frozen=True, slots=True)
class Event:
    """What a business system publishes; `payload` is JSON text, kept and sent byte for byte."""

    biz: int
    event_type: str
    payload: bytes
    idempotency_key: str | None = None
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one event. `code` is stable: `invalid` or `conflict` when rejected."""

    outcome: Outcome
    id: int = 0
    code: str = ""
    reason: str = ""
    field: str = ""


@dataclass(slots=True)
class _Row:
    event: Event
    bucket: int
    payload_hash: str
    id: int = 0


def check(event: Event) -> None:
    """Raise InvalidInput, naming the field and what to change."""
    if not _EVENT_TYPE.fullmatch(event.event_type) or len(event.event_type) > 128:
        raise InvalidInput(
            "use letters, digits and _ in parts joined by dots, at most 128 characters, "
            "such as order.paid",
            "event_type",
        )
    if not _CHANNEL.fullmatch(event.channel) or len(event.channel) > 64:
        raise InvalidInput("use at most 64 letters, digits and _ . : -", "channel")
    key = event.idempotency_key
    if key is not None and (len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key)):
        raise InvalidInput(
            f"use 1 to {MAX_KEY_LENGTH} visible ASCII characters without spaces",
            "idempotency_key",
        )
    if len(event.payload) > MAX_PAYLOAD_BYTES:
        raise InvalidInput(f"it must not be longer than {MAX_PAYLOAD_BYTES} bytes", "payload")
    _check_json(event.payload)


def _check_json(payload: bytes) -> None:
    try:
        payload.decode("utf-8")
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"it is not JSON in UTF-8: {error}", "payload") from None


def publish_many(events: Sequence[Event]) -> list[Verdict]:
    """Store events in one transaction; the verdicts come in the same order.

    Must not run inside a transaction of the caller: an answer given before the caller's commit
    would not be durable. Raises OperationalError when the database is away.
    """
    verdicts: list[Verdict | None] = [None] * len(events)
    rows: dict[int, _Row] = {}
    for index, event in enumerate(events):
        try:
            check(event)
        except InvalidInput as error:
            verdicts[index] = Verdict("rejected", 0, "invalid", str(error), error.field)
        else:
            rows[index] = _prepare(event)
    if rows:
        for index, verdict in zip(rows, _store(list(rows.values())), strict=True):
            verdicts[index] = verdict
    return [verdict for verdict in verdicts if verdict is not None]


def publish(event: Event) -> Verdict:
    """Store one event together with whatever else arrives in this process meanwhile.

    Raises InvalidInput, Unavailable (nothing happened) or OutcomeUnknown (repeat with the key).
    """
    check(event)
    return _committer().submit(_prepare(event))


def publish_later(event: Event, call: Callable[[Verdict | None, Exception | None], None]) -> None:
    """Like `publish`, but `call` gets the verdict or the error, in another thread.

    What is wrong with the event itself is raised here; `call` is then not called.
    """
    check(event)
    _committer().submit_later(_prepare(event), call)


@lru_cache(maxsize=1)
def _committer() -> GroupCommit[_Row, Verdict]:
    return GroupCommit(_store, max_items=500)


def _prepare(event: Event) -> _Row:
    key = event.idempotency_key
    digest = hashlib.sha256(
        b"%s\n%s\n%s" % (event.event_type.encode(), event.channel.encode(), event.payload)
    )
    return _Row(event, ids.bucket(event.biz, key), digest.hexdigest() if key is not None else "")


def _store(rows: list[_Row]) -> list[Verdict]:
    block = ids.reserve(len(rows))
    for row, row_id in zip(rows, block.ids([row.bucket for row in rows]), strict=True):
        row.id = row_id
    return sql.retrying(lambda: _store_once(rows))


def _store_once(rows: list[_Row]) -> list[Verdict]:
    now = sql.stored(timezone.now())  # once, instead of for each row
    keyed = [row for row in rows if row.event.idempotency_key is not None]
    with transaction.atomic(durable=True):
        _claim_keys(keyed, now)
        won = _won(keyed)
        lost = [row for row in keyed if row.id not in won]
        fresh = [r for r in rows if r.event.idempotency_key is None or r.id in won]
        _insert_messages(fresh, now)
        failpoint("intake_before_commit")
        first = _first_ones(lost)
    failpoint("intake_after_commit")
    return [_verdict(row, first) for row in rows]


def _claim_keys(rows: list[_Row], now: object) -> None:
    # Sorted, so that two groups with common keys wait for each other instead of deadlocking.
    rows = sorted(rows, key=lambda r: (r.bucket, r.event.biz, r.event.idempotency_key))
    sql.insert_or_keep(
        "idempotency",
        ("id", "bucket", "biz_id", "key", "payload_hash", "created_at"),
        [(r.id, r.bucket, r.event.biz, r.event.idempotency_key, r.payload_hash, now) for r in rows],
    )


def _won(rows: list[_Row]) -> set[int]:
    """Ids of those rows whose key was new: the key's row carries our id."""
    if not rows:
        return set()
    places = ", ".join(["%s"] * len(rows))
    with connection.cursor() as cursor:
        # The statement is the same for every group of this size: nothing for the ORM to decide.
        cursor.execute(
            f"SELECT id FROM idempotency WHERE id IN ({places})",  # noqa: S608
            [row.id for row in rows],
        )
        return {found for (found,) in cursor.fetchall()}


def _insert_messages(rows: list[_Row], now: object) -> None:
    if not rows:
        return
    accepted = int(BizMsg.State.ACCEPTED)
    # Keep: after a connection lost during COMMIT the same rows, with the same ids, come again.
    sql.insert_or_keep(
        "biz_msg",
        ("id", "biz_id", "event_type", "channel", "payload", "state", "created_at", "claimed_by"),
        [
            (r.id, e.biz, e.event_type, e.channel, e.payload, accepted, now, "")
            for r, e in ((row, row.event) for row in rows)
        ],
    )


def _first_ones(lost: list[_Row]) -> dict[tuple[int, str], tuple[int, str]]:
    """(biz, key) → (id, payload hash) of the message that has the key."""
    found: dict[tuple[int, str], tuple[int, str]] = {}
    for start in range(0, len(lost), _LOOKUP):
        condition = Q()
        for row in lost[start : start + _LOOKUP]:
            condition |= Q(bucket=row.bucket, biz_id=row.event.biz, key=row.event.idempotency_key)
        for item in IdempotencyKey.objects.filter(condition).only("biz_id", "key", "payload_hash"):
            found[item.biz_id, item.key] = (item.id, item.payload_hash)
    return found


def _verdict(row: _Row, first: dict[tuple[int, str], tuple[int, str]]) -> Verdict:
    key = row.event.idempotency_key
    winner = first.get((row.event.biz, key)) if key is not None else None
    if winner is None or winner[0] == row.id:
        return Verdict("created", row.id)
    if winner[1] == row.payload_hash:
        return Verdict("duplicate", winner[0])
    return Verdict(
        "rejected",
        winner[0],
        "conflict",
        "this idempotency key was used for another payload; use a new key for a new event",
        "idempotency_key",
    )
