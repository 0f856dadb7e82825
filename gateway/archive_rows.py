"""A message of Redis as a row of the archive: the pump writes it, pages show it before it ends."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gateway import notifications, sgip
from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt

# The last day in every database and time zone: intake once accepted any `expire_at`.
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def message_row(message: Finished, archived_at: datetime | None) -> dict[str, Any]:
    """The columns of `sgip_mt` by name."""
    mt = message.mt
    code, sentence = notifications.ending(message.error)
    result = next((r for r in message.results.values() if r), 0)
    return {
        "id": int(mt.id), "biz_id": mt.biz, "account_id": mt.account,
        "gateway_id": message.gateway, "sp_number": mt.sp_number,
        "charge_number": mt.charge_number, "user_number": mt.user_number,
        "corp_id": mt.corp_id, "service_type": mt.service_type, "fee_type": mt.fee_type,
        "fee_value": mt.fee_value, "given_value": mt.given_value, "agent_flag": mt.agent_flag,
        "morelateto_mt_flag": mt.morelateto_mt_flag, "priority": mt.priority,
        "expire_at": time_of(mt.expire_at), "schedule_at": time_of(mt.schedule_at),
        "report_flag": mt.report_flag,
        # The MessageCoding with which the text went out.
        "message_coding": int(sgip.choose_coding(mt.text + mt.signature)),
        "text": mt.text, "parts": message.parts, "idempotency_key": mt.key,
        "reference": mt.reference, "final": message.final, "result": result,
        "error_code": code, "error": sentence[:100],
        "accepted_at": time_of(message.accepted_at),
        "submitted_at": time_of(message.submitted_at),
        "responded_at": time_of(message.responded_at),
        "reported_at": time_of(message.reported_at),
        "ended_at": time_of(message.ended_at), "archived_at": archived_at,
        "event_id": message.event_id,
    }  # fmt: skip


def live_row(message: Finished) -> SgipMt:
    """The unsaved row of a message in Redis: `archived_at` is None, and `final` is '' before its
    end."""
    return SgipMt(**message_row(message, None))


# The messages of a script have the same time.
@lru_cache(maxsize=1024)
def time_of(seconds: float) -> datetime | None:
    """The time of seconds since 1970; None for 0."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC) if seconds else None
