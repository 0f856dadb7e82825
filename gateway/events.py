"""What a business system hears: `sms.report` and `sms.mo` as Notify's events (`docs/sms.md`)."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from gateway import sgip
from gateway.directory import Directory
from gateway.lifecycle.messages import Finished, Mo
from notify.intake import Event

REPORT, MO = "sms.report", "sms.mo"


def report(found: Finished, directory: Directory) -> Event:
    """The ending of a message. Its key makes a repeat of the same ending the same event."""
    code, sentence = ending(found.error)
    mt = found.mt
    return _event(
        mt.biz, REPORT, f"{REPORT}:{mt.id}:{found.final}",
        {
            "id": mt.id,
            "reference": mt.reference,
            "to": mt.user_number,
            "account": _account(directory, mt.account),
            "state": found.final,
            "error_code": code,
            "error": sentence,
            "parts": found.parts,
            "accepted_at": iso(found.accepted_at),
            "submitted_at": iso(found.submitted_at),
            "reported_at": iso(found.reported_at),
        },
    )  # fmt: skip


def mo(message: Mo, directory: Directory) -> Event:
    """A message from a handset, for the system that owns its number."""
    return _event(
        message.biz, MO, f"{MO}:{message.id}",
        {
            "id": message.id,
            "from": message.user_number,
            "to": message.sp_number,
            "account": _account(directory, message.account),
            "text": message.text,
            "parts": message.parts,
            "missing_parts": message.missing,
            "received_at": iso(message.at),
        },
    )  # fmt: skip


def ending(error: str) -> tuple[int, str]:
    """(code, sentence): the gateway's number with its meaning, or the platform's own reason."""
    if not error.isdigit():
        return 0, error
    code = int(error)
    return code, sgip.result_text(code) if code else ""


def iso(moment: float) -> str | None:
    """Unix seconds as ISO 8601 in UTC, None for a time that never came."""
    if not moment:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _event(biz: int, event_type: str, key: str, payload: dict[str, object]) -> Event:
    return Event(biz, event_type, msgspec.json.encode(payload), key)


def _account(directory: Directory, account: int) -> str:
    known = directory.accounts.get(account)
    return known.row.name if known else ""
