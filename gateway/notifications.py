"""The events of SMS for business systems: `sms.report` and `sms.mo` (`docs/sms.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gateway import sgip
from gateway.directory import Directory
from gateway.lifecycle.messages import Finished, Mo
from gateway.models import SgipMt, SmsAccount
from notify import personal_fields
from notify.intake.intake import Event

REPORT, MO = "sms.report", "sms.mo"


def register_personal_fields() -> None:
    """Say which fields of the events hold personal data; called when the app is ready."""
    personal_fields.register(REPORT, ("/to",))
    personal_fields.register(MO, ("/from", "/text"))


def report(message: Finished, directory: Directory) -> Event:
    """The ending of a message. Its key makes a repeat of the same ending the same event."""
    code, sentence = ending(message.error)
    mt = message.mt
    return _report(
        mt.biz,
        id=mt.id,
        reference=mt.reference,
        to=mt.user_number,
        account=directory.account_names.get(mt.account, ""),
        state=message.final,
        error_code=code,
        error=sentence,
        parts=message.parts,
        times=(message.accepted_at, message.submitted_at, message.reported_at),
    )


def announced(message: Finished, final: str, payload: bytes) -> Event:
    """The event of an earlier ending, as it was announced."""
    return Event(message.mt.biz, REPORT, payload, _report_key(message.id, final))


def late_report(mt: SgipMt) -> Event:
    """The real ending of an archived message that had ended as unknown."""
    times = (mt.accepted_at, mt.submitted_at, mt.reported_at)
    # From the database, for the pump has no directory: a late Report is rare.
    names = SmsAccount.objects.filter(pk=mt.account_id).values_list("name", flat=True)
    return _report(
        mt.biz_id,
        id=str(mt.pk),
        reference=mt.reference,
        to=mt.user_number,
        account=names.first() or "",
        state=mt.final,
        error_code=mt.error_code,
        error=mt.error,
        parts=mt.parts,
        times=tuple(moment.timestamp() if moment else 0.0 for moment in times),
    )


def mo(message: Mo, directory: Directory) -> Event:
    """A message from a handset, for the system that owns its number."""
    # Each MO has one key: a second forwarder that publishes it adds nothing.
    payload = {
        "id": message.id,
        "from": message.user_number,
        "to": message.sp_number,
        "account": directory.account_names.get(message.account, ""),
        "text": message.text,
        "parts": message.parts,
        "missing_parts": message.missing,
        "received_at": iso(message.at),
    }
    return Event(message.biz, MO, msgspec.json.encode(payload), f"{MO}:{message.id}")


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


def _report(
    biz: int,
    *,
    id: str,
    reference: str,
    to: str,
    account: str,
    state: str,
    error_code: int,
    error: str,
    parts: int,
    times: Sequence[float],
) -> Event:
    """The event of an ending; `times` are the times of acceptance, Submit and Report."""
    accepted_at, submitted_at, reported_at = map(iso, times)
    payload = {
        "id": id, "reference": reference, "to": to, "account": account, "state": state,
        "error_code": error_code, "error": error, "parts": parts, "accepted_at": accepted_at,
        "submitted_at": submitted_at, "reported_at": reported_at,
    }  # fmt: skip
    return Event(biz, REPORT, msgspec.json.encode(payload), _report_key(id, state))


def _report_key(id: str, state: str) -> str:
    # Notify's idempotency key: an ending that is published again adds nothing.
    return f"{REPORT}:{id}:{state}"
