"""The events of SMS for business systems: `sms.report` or `sms.reports`, and `sms.mo`
(`docs/sms.md`)."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b

import msgspec

from gateway import sgip
from gateway.directory import Directory
from gateway.lifecycle.messages import Finished, Mo
from gateway.models import SgipMt, SmsAccount
from msgplatform.core.data import chunks
from notify import personal_fields
from notify.intake.intake import Event
from notify.models import BizReceive
from notify.subscriptions.matching import compile_filter

REPORT, REPORTS, MO = "sms.report", "sms.reports", "sms.mo"
MAX_REPORTS = 200  # maximum of messages in an event, each less than a 200th of the longest payload
_BEGIN, _END = b'{"reports":[', b"]}"


class _Report(msgspec.Struct, frozen=True):
    """The payload of an ending's event; the times are those of acceptance, Submit and Report."""

    id: str
    reference: str
    to: str
    account: str
    state: str
    error_code: int
    error: str
    parts: int
    accepted_at: str | None
    submitted_at: str | None
    reported_at: str | None


def register_personal_fields() -> None:
    """Say which fields of the events hold personal data; called when the app is ready."""
    personal_fields.register(REPORT, ("/to",))
    personal_fields.register(REPORTS, ("/reports/*/to",))
    personal_fields.register(MO, ("/from", "/text"))


def report(message: Finished, directory: Directory) -> Event:
    """The event of a message's ending. Its key depends on the ending: a repetition is the same
    event. An account whose Reports travel in batches gets a batch of one; see `in_batches`."""
    mt, (code, sentence) = message.mt, ending(message.error)
    payload = _Report(
        id=mt.id, reference=mt.reference, to=mt.user_number,
        account=directory.known.account_names.get(mt.account, ""), state=message.final,
        error_code=code, error=sentence, parts=message.parts, accepted_at=iso(message.accepted_at),
        submitted_at=iso(message.submitted_at), reported_at=iso(message.reported_at),
    )  # fmt: skip
    return _event(mt.biz, payload, mt.account in directory.known.batching_ids)


def is_taken(event_type: str, biz: int) -> bool:
    """True if a subscription of the business system takes events of this type."""
    rows = BizReceive.objects.filter(biz_id=biz).exclude(status=BizReceive.Status.DISCARDED)
    filters = rows.values_list("event_types", "channels")
    return any(compile_filter(*patterns).matches(event_type, "") for patterns in filters)


def in_batches(events: Mapping[str, Event]) -> list[tuple[Event, list[str]]]:
    """Join batches of one (message id → event) into larger batches, where they can share an event.
    Returns each batch with the ids of its messages.

    The same messages, in any order, make the same event. A message that comes again in another
    batch is in two events, each time with the same `id` and `state`.
    """
    ids_of_systems: dict[int, list[str]] = defaultdict(list)
    for id, event in events.items():
        ids_of_systems[event.biz].append(id)
    batches: list[tuple[Event, list[str]]] = []
    for biz, ids in ids_of_systems.items():
        for batch_ids in chunks(sorted(ids), MAX_REPORTS):
            event = events[batch_ids[0]]
            if len(batch_ids) > 1:
                payloads = (events[id].payload for id in batch_ids)
                reports = b",".join(payload[len(_BEGIN) : -len(_END)] for payload in payloads)
                keys = " ".join(events[id].idempotency_key or "" for id in batch_ids)
                digest = blake2b(keys.encode(), digest_size=16).hexdigest()
                event = Event(biz, REPORTS, _BEGIN + reports + _END, f"{REPORTS}:{digest}")
            batches.append((event, list(batch_ids)))
    return batches


def announced_event(message: Finished, final: str, payload: bytes) -> Event:
    """The event of an earlier ending, as it was announced."""
    # The payload decides, because the account's setting may have changed since.
    event_type = REPORTS if payload.startswith(_BEGIN) else REPORT
    return Event(message.mt.biz, event_type, payload, _report_key(message.id, final))


def late_report(mt: SgipMt) -> Event:
    """The real ending of an archived message that had ended as unknown."""
    # The database is asked, because the pump has no directory: late Reports are rare.
    account = SmsAccount.objects.filter(pk=mt.account_id).first()
    payload = _Report(
        id=str(mt.pk), reference=mt.reference, to=mt.user_number,
        account=account.name if account else "", state=mt.final, error_code=mt.error_code,
        error=mt.error, parts=mt.parts, accepted_at=iso_time(mt.accepted_at),
        submitted_at=iso_time(mt.submitted_at), reported_at=iso_time(mt.reported_at),
    )  # fmt: skip
    return _event(mt.biz_id, payload, account is not None and account.report_batches)


def mo(message: Mo, directory: Directory) -> Event:
    """A message from a handset, for the system that owns its number."""
    # Each MO has one key: a second publication by another forwarder adds no event.
    payload = {
        "id": message.id,
        "from": message.user_number,
        "to": message.sp_number,
        "account": directory.known.account_names.get(message.account, ""),
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


# The messages of a script have the same time.
@lru_cache(maxsize=1024)
def iso(seconds: float) -> str | None:
    """Unix seconds as ISO 8601 in UTC, None for a time that never came."""
    return iso_time(datetime.fromtimestamp(seconds, UTC)) if seconds else None


def iso_time(at: datetime | None) -> str | None:
    """A time as ISO 8601 in UTC, None for a time that never came."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z" if at else None


def _event(biz: int, report: _Report, is_batch: bool) -> Event:
    payload, key = msgspec.json.encode(report), _report_key(report.id, report.state)
    if is_batch:
        return Event(biz, REPORTS, _BEGIN + payload + _END, key)
    return Event(biz, REPORT, payload, key)


def _report_key(id: str, state: str) -> str:
    # Notify's idempotency key: publishing an ending again adds no event.
    return f"{REPORT}:{id}:{state}"
