"""The actions of the console on the recovery log, each with a line in the audit log.

All functions raise InvalidInput, in the language of the person who acts.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync import copies, models, orders, trials
from crmsync.adapters.base import UnknownField
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.orders import Request
from crmsync.policies.mapping import MAX_FIELD, MAX_RULES
from crmsync.recovery import entries
from msgplatform.core.connections import RedisError
from msgplatform.core.data import claims, ids, sql, transactions
from msgplatform.core.errors import InvalidInput, PlatformError
from msgplatform.messages.filters import MAX_SELECTION
from msgplatform.models import AuditLog

MAX_BYTES = 256 * 1024  # bytes of an edited request's fields as JSON


def retry(entry_ids: Sequence[int], by: str) -> int:
    """Do `entries.resend_entries` for at most MAX_SELECTION entries; a bulk job has no maximum."""
    return _run_audited(entries.resend_entries, "recovery_retried", entry_ids, by)


def dismiss(entry_ids: Sequence[int], by: str) -> int:
    """Do `entries.dismiss` for at most MAX_SELECTION entries."""
    return _run_audited(entries.dismiss, "recovery_dismissed", entry_ids, by)


def edit_and_retry(entry_id: int, fields: Mapping[str, Any], by: str) -> None:
    """Send a dead record with these fields instead of its own, now.

    The new request is an operation of one record, with the same version: later changes at the
    source are sent as usual, and reading the same row again changes nothing. The earlier operation
    keeps its dead record. Raises InvalidInput with the field at fault, also for a field that the
    CRM does not have; without a field if the entry is no longer open or a newer version was read.
    """
    entry = RecoveryEntry.open_entries(pk=entry_id).first()
    if entry is None or entry.record_id is None:
        raise _no_longer_open()
    if not 1 <= len(fields) <= MAX_RULES:
        raise InvalidInput(_("Use 1 to %d fields.") % MAX_RULES, "fields")
    for name in fields:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_FIELD:
            raise InvalidInput(
                _("A field's name has 1 to %d characters.") % MAX_FIELD, str(name)[:MAX_FIELD]
            )
    try:
        size = len(msgspec.json.encode(fields))
    except (TypeError, ValueError):  # also text that is no Unicode
        raise InvalidInput(_("Write values as JSON has them."), "fields") from None
    if size > MAX_BYTES:
        raise InvalidInput(_("All fields together have at most %d bytes.") % MAX_BYTES, "fields")
    _ask_crm(entry.crm_id, fields)
    # The id is made before the transaction, which may be repeated.
    operation_id = ids.new(ids.bucket_of(entry.record_id))
    operation = _edit(entry_id, dict(fields), operation_id, by)
    with contextlib.suppress(RedisError):  # a lost copy is harmless: the database has the operation
        copies.keep(operation)


@transactions.repeatable
def _edit(entry_id: int, fields: dict[str, Any], operation_id: int, by: str) -> Operation:
    pair = entries.lock_entry(entry_id)
    if pair is None:
        raise _no_longer_open()
    entry, record = pair
    # A newer version would be sent than the one that the person has seen.
    if record.state != Record.State.DEAD or record.version != entry.version:
        raise InvalidInput(_("A newer version of this record was read meanwhile."))
    if record.deleted:
        raise InvalidInput(_("This is a deletion, which has no fields to edit."))
    # Requests have the key as the CRM knows it.
    prefix = Policy.objects.values_list("key_prefix", flat=True).get(pk=record.policy_id)
    request = Request(
        prefix + record.key, record.version, fields, previous=record.operation_id,
        row_digest=record.digest,
    )  # fmt: skip
    now = sql.now()
    operation = Operation.objects.create(
        id=operation_id,
        data=orders.dump([request]),
        start_at=int(now.timestamp() * 1000),
        policy_id=record.policy_id,
        records=1,
    )
    rows = Record.objects.filter(pk=record.pk)
    claims.update_by_key(rows, {**entries.RESET, "operation_id": operation_id})
    entries.close([entry.pk], RecoveryEntry.State.RETRIED, now, by)
    _audit(by, "recovery_edited", str(entry.pk), record=record.pk, fields=sorted(fields))
    return operation


def _no_longer_open() -> InvalidInput:
    return InvalidInput(_("This entry is no longer open, or is not about one record."))


@transactions.repeatable
def _run_audited(
    work: Callable[[Sequence[int], str], int], action: str, entry_ids: Sequence[int], by: str
) -> int:
    if len(entry_ids) > MAX_SELECTION:
        raise InvalidInput(
            _("Select at most %d; for more, start a bulk job.") % MAX_SELECTION, "ids"
        )
    sorted_ids = sorted(set(entry_ids))
    count = work(sorted_ids, by)
    if count:
        _audit(by, action, ", ".join(map(str, sorted_ids)), entries=sorted_ids, done=count)
    return count


def _audit(by: str, action: str, entry: str, **detail: Any) -> None:
    AuditLog.record(by, action, f"recovery log {entry}", **detail)


def _ask_crm(crm_id: int, fields: Mapping[str, Any]) -> None:
    """Raises UnknownField. A CRM that cannot be asked reports the field when the record is sent."""
    row = models.Crm.objects.filter(pk=crm_id).first()
    if row is None:
        raise InvalidInput(_("The CRM of this entry does not exist any more."))
    try:
        trials.ask_crm(row, lambda adapter: adapter.check_mapping(list(fields)))
    except UnknownField:
        raise
    except PlatformError:
        return  # an alert already says that the CRM cannot be used, or a call will fail
