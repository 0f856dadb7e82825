"""Functions that start and change erasures. Their callers check permissions.

All functions that change something write a line of the audit log, without an identifier.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from msgplatform.company.person_data import erasure_list
from msgplatform.company.person_data.models import MAX_REASON, Erasure
from msgplatform.company.person_data.people import SYSTEMS_OF_USERS, hashes, person_in, systems_of
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.person import identity
from msgplatform.models import AuditLog

_State = Erasure.State


def start(
    identifiers: Mapping[str, Iterable[str]], reason: str, ends_open: bool, actor: str
) -> Erasure:
    """Start an erasure, which `run_bulk` carries out. The list outside of the database has it
    before this returns. Raises InvalidInput, also for a reason that names the person, and OSError
    when the list cannot be written."""
    clean_identifiers = identity.clean(identifiers)
    systems = systems_of(clean_identifiers.get("users", ()))
    person = person_in(clean_identifiers, systems)
    reason = reason.strip()
    if not reason or len(reason) > MAX_REASON:
        raise InvalidInput(_("Say why, in at most %d characters.") % MAX_REASON, "reason")
    if person.is_in(reason):
        words = _("Leave out the person's number and address: the reason is kept.")
        raise InvalidInput(words, "reason")
    with transaction.atomic():
        row = Erasure.objects.create(
            identifiers={**clean_identifiers, SYSTEMS_OF_USERS: systems},
            hashes=hashes(clean_identifiers),
            reason=reason,
            ends_open=ends_open,
            created_by=actor[:150],
            created_at=sql.now(),
        )
        AuditLog.record(
            actor, "person_erased", row.audit_target,
            reason=reason, hashes=row.hashes, ends_open=ends_open,
        )  # fmt: skip
        erasure_list.add(row)
    return row


def end_open(key: str, actor: str) -> Erasure:
    """Have an erasure end what is on its way instead of waiting for it. Raises NotNow, OSError, and
    Erasure.DoesNotExist."""
    with transaction.atomic():
        row = _lock_open_row(key)
        row.ends_open, row.lease_until = True, None
        row.save(update_fields=["ends_open", "lease_until"])
        erasure_list.add(row)  # after a restore its repetition does not wait either
        AuditLog.record(actor, "erasure_ends_open", row.audit_target)
    return row


def cancel(key: str, actor: str) -> Erasure:
    """Stop an erasure: erased data stays erased, and the list notes that it was cancelled. Raises
    NotNow, OSError, and Erasure.DoesNotExist."""
    with transaction.atomic():
        row = _lock_open_row(key)
        row.state, row.finished_at = _State.CANCELLED, sql.now()
        row.identifiers = {}
        row.save(update_fields=["state", "finished_at", "identifiers"])
        AuditLog.record(actor, "erasure_cancelled", row.audit_target)
        erasure_list.cancel(row.key)
    return row


def repeat_all(actor: str) -> int:
    """Run every erasure of the list again, as after a restore of a Redis or of the archive's
    database alone; returns their number."""
    erasure_list.read_into_database()
    rows = Erasure.objects.filter(state=_State.DONE, created_at__gte=kept_since())
    keys = [row.key for row in rows if row.identifiers]
    with transaction.atomic():
        count = Erasure.objects.filter(key__in=keys).update(
            state=_State.PENDING, store="", cursor="", found=0, open={}, error="", claimed_by="",
            lease_until=None, finished_at=None, repeated_at=sql.now(),
        )  # fmt: skip
        AuditLog.record(actor, "erasures_repeated", "erasures", count=count)
    return count


def kept_since() -> datetime:
    """Erasures that were requested before this time keep no identifiers."""
    return sql.now() - timedelta(days=settings.PERSON_ERASURE_DAYS)


def _lock_open_row(key: str) -> Erasure:
    row = Erasure.objects.select_for_update().get(key=key)
    if not row.is_open:
        raise NotNow(_("This erasure has ended."))
    return row
