"""The states of messages, for their owner: from Redis while it has them, else from the archive.

Redis is asked first, then the archive: the pump deletes keys only after the archive has the rows,
so that one of them always has the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from gateway import notifications
from gateway.archive_rows import live_row
from gateway.lifecycle import store
from gateway.models import SgipMt, SmsAccount
from msgplatform.core.flows.messages import MAX_ID

MAX_IDS = 1000  # ids of one call


class State(msgspec.Struct, frozen=True):
    """One message as its owner sees it. `state` is pending, submitted or responded, then the
    ending: delivered, failed, expired, unknown or accepted. Times are ISO 8601 in UTC."""

    id: str
    state: str
    to: str
    text: str
    account: str
    reference: str
    parts: int
    error_code: int
    error: str
    accepted_at: str | None
    schedule_at: str | None
    submitted_at: str | None
    responded_at: str | None
    reported_at: str | None
    archived_at: str | None


def states(biz: int, ids: Sequence[str]) -> dict[str, State]:
    """Id → state of the messages that this business system sent. Raises RedisError."""
    # A text that is no BIGINT cannot be a message's id.
    requested_ids = [
        id
        for id in dict.fromkeys(ids)
        if id.isascii() and id.isdigit() and len(id) <= 19 and int(id) <= MAX_ID
    ]
    if not requested_ids:
        return {}
    live_messages = store.read(requested_ids)
    live_ids = {message.mt.id for message in live_messages}
    own_messages = [message for message in live_messages if message.mt.biz == biz]
    names = _names({message.mt.account for message in own_messages})
    live_states = {
        message.mt.id: _state(
            live_row(message), message.final or message.state, names.get(message.mt.account, "")
        )
        for message in own_messages
    }
    archived_ids = [int(id) for id in requested_ids if id not in live_ids]
    return live_states | {state.id: state for state in archived_states(biz, archived_ids).values()}


def archived_states(biz: int, ids: Sequence[int]) -> dict[int, State]:
    """Id → state of the messages of the archive that this business system sent, newest first."""
    if not ids:
        return {}
    # No condition on the system: MariaDB might use it and read all rows of the system.
    rows = [row for row in SgipMt.objects.filter(id__in=ids).order_by("-id") if row.biz_id == biz]
    names = _names({row.account_id for row in rows})
    return {row.pk: _state(row, row.final, names.get(row.account_id, "")) for row in rows}


def _state(row: SgipMt, state: str, account: str) -> State:
    return State(
        id=str(row.pk),
        state=state,
        to=row.user_number,
        text=row.text,
        account=account,
        reference=row.reference,
        parts=row.parts,
        error_code=row.error_code,
        error=row.error,
        accepted_at=_iso(row.accepted_at),
        schedule_at=_iso(row.schedule_at),
        submitted_at=_iso(row.submitted_at),
        responded_at=_iso(row.responded_at),
        reported_at=_iso(row.reported_at),
        archived_at=_iso(row.archived_at),
    )


def _names(accounts: set[int]) -> dict[int, str]:
    rows = SmsAccount.objects.filter(pk__in=accounts).values_list("pk", "name") if accounts else ()
    return dict(rows)


def _iso(time: datetime | None) -> str | None:
    return notifications.iso(time.timestamp()) if time else None
