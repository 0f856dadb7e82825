"""The states of messages, with reasons and colours: from Redis while it has them, else from the
archive.

Redis is asked first, then the archive: the pump deletes keys only after the archive has the rows,
so that one of them always has the message."""

import time
from collections.abc import Mapping, Sequence

import msgspec
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from gateway import codes, presence
from gateway.archive_rows import live_row
from gateway.lifecycle import store
from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.notifications import iso_time
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql
from msgplatform.core.flows.messages import MAX_ID
from msgplatform.core.flows.page import Tone

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
    account_ids = [message.mt.account for message in own_messages]
    names = sql.names_by_id(SmsAccount.objects.only("name"), account_ids)
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
    names = sql.names_by_id(SmsAccount.objects.only("name"), (row.account_id for row in rows))
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
        accepted_at=iso_time(row.accepted_at),
        schedule_at=iso_time(row.schedule_at),
        submitted_at=iso_time(row.submitted_at),
        responded_at=iso_time(row.responded_at),
        reported_at=iso_time(row.reported_at),
        archived_at=iso_time(row.archived_at),
    )


_Final = SgipMt.Final
TITLES = dict(_Final.choices) | {
    "pending": pgettext_lazy("message", "pending"), "submitted": gettext_lazy("submitted"),
    "responded": gettext_lazy("responded"),
}  # fmt: skip
TONES: Mapping[str, Tone] = {
    _Final.DELIVERED: "good", _Final.ACCEPTED: "good", _Final.EXPIRED: "bad",
    _Final.UNKNOWN: "warn", _Final.FAILED: "bad",
}  # fmt: skip


def waiting_reason(message: Finished, gateway: SmsGateway | None) -> str:
    """The reason why a message that has not ended is where it is."""
    name = gateway.name if gateway else message.gateway
    if message.state == "responded":
        return _("The gateway %s took it; its Report has not come yet.") % name
    if message.state == "submitted":
        return _("It was sent to the gateway %s, which has not answered yet.") % name
    if message.mt.schedule_at > time.time():
        return _("It is not to be sent before its time.")
    if gateway is None:
        return _("Its gateway was deleted.")
    if not gateway.enabled:
        return _("Its gateway %s is switched off.") % name
    try:
        if gateway.pk not in presence.connected_gateways(presence.live()):
            return _("No sender is connected to its gateway %s: it waits for a connection.") % name
    except RedisError:
        return _("The SMS Redis does not answer: whether its gateway is connected is not known.")
    return _("It waits for its turn at the gateway %s.") % name


def ending_reason(row: SgipMt) -> str:
    """The reason why a message ended so; '' for a delivered one."""
    if row.final == _Final.UNKNOWN:
        return _("Its Report never came: nobody knows whether it arrived.")
    if row.final == _Final.EXPIRED:
        return _("Its time was over before it could be sent.")
    if row.final == _Final.ACCEPTED:
        return _("The gateway took it; no Report was asked for, or only one of a failure.")
    return codes.with_meaning(row.error_code) or row.error
