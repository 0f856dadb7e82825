"""Adoption of records in a CRM that people made.

A conflict leads to a record that the platform did not make: it is *adopted*. That is stored before
the record is sent with its id, so that a handler that is killed afterwards cannot make it the
platform's own. The policy decides how such a record is changed.
"""

from collections.abc import Collection, Iterable, Sequence

from django.db.models import QuerySet

from crmsync.adapters import base
from crmsync.adapters.outcomes import Conflict, Ok
from crmsync.handler.answers import Answer
from crmsync.models import Policy, Record
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.orders import Entry, Order
from msgplatform.core.data import chunks, claims, transactions

_OnConflict = Policy.OnConflict


class Adoption:
    """The adopted records of one order. Its methods raise what an unavailable database raises."""

    def __init__(self, order: Order) -> None:
        self._order = order
        # The choices are read for the first adopted record: most orders have no such record.
        self._has_choices = False
        self._on_conflict: str = _OnConflict.FILL_EMPTY
        self._can_delete = False
        self._record_ids: set[int] = set()  # of adopted records

    def read(self, record_ids: Collection[int]) -> None:
        """Read which records the order has adopted; `record_ids` are stored as such."""
        if not record_ids:
            return
        self._read_choices()
        entries = [entry for entry in self._order.entries if entry.record in record_ids]
        own_ids = self._own_ids(entry.remote_id for entry in entries)
        self._record_ids = {entry.record for entry in entries if entry.remote_id not in own_ids}

    def _read_choices(self) -> None:
        """Read the policy's choices, once for each order."""
        if self._has_choices:
            return
        policies = Policy.objects.filter(pk=self._order.policy)
        for choices in policies.values_list("on_conflict", "delete_adopted"):
            self._on_conflict, self._can_delete = choices
        self._has_choices = True

    def is_adopted(self, entry: Entry) -> bool:
        return entry.record in self._record_ids

    def to_send(self, entry: Entry) -> base.Record:
        """The record as an adapter takes it."""
        request, is_adopted = entry.request, self.is_adopted(entry)
        return base.Record(
            request.key, request.version, request.fields, request.deleted, entry.remote_id,
            is_adopted=is_adopted and not self._can_delete,
            should_fill_empty=is_adopted and self._on_conflict != _OnConflict.UPDATE,
        )  # fmt: skip

    def adopt(
        self, conflicts: Sequence[tuple[Entry, Conflict]], answers: Sequence[Answer]
    ) -> set[int]:
        """Adopt the records of these conflicts, unless the platform made them. `answers` are the
        order's answers so far: the database does not have these records' ids yet.

        Returns the ids of records that are not sent again, because people decide.
        """
        undecided_ids = {
            entry.record for entry, conflict in conflicts if self._should_keep_own(entry, conflict)
        }
        pairs = [
            (entry, conflict.existing_id)
            for entry, conflict in conflicts
            if not conflict.has_key and entry.record not in undecided_ids
        ]
        if not pairs:
            return undecided_ids
        self._read_choices()
        new_ids = {
            answer.outcome.remote_id
            for answer in answers
            if isinstance(answer.outcome, Ok) and not self.is_adopted(answer.entry)
        }
        own_ids = new_ids | self._own_ids(remote_id for _, remote_id in pairs)
        foreign_records = [pair for pair in pairs if pair[1] not in own_ids]
        if self._on_conflict == _OnConflict.DEAD:
            return undecided_ids | {entry.record for entry, _ in foreign_records}
        if foreign_records:
            self._store(foreign_records)
            self._record_ids.update(entry.record for entry, _ in foreign_records)
        return undecided_ids

    def _should_keep_own(self, entry: Entry, conflict: Conflict) -> bool:
        """True if the entry keeps the record that the platform made in the CRM. If the entry took
        another record, nobody would change or delete the first one any more."""
        is_own = bool(entry.remote_id) and not self.is_adopted(entry)
        is_same = conflict.has_key or conflict.existing_id == entry.remote_id
        return is_own and not is_same and not conflict.is_gone

    @transactions.repeatable
    def _store(self, foreign: Sequence[tuple[Entry, str]]) -> None:
        for entry, remote_id in sorted(foreign, key=lambda pair: pair[0].record):
            rows = Record.objects.filter(pk=entry.record, claimed_by=self._order.claim)
            is_storable = len(remote_id) <= MAX_REMOTE_ID
            rows.update(is_adopted=True, **({"remote_id": remote_id} if is_storable else {}))

    def _own_ids(self, remote_ids: Iterable[str]) -> set[str]:
        """The remote ids among these that belong to a record which the platform made. A record that
        the platform has deleted and people have restored belongs to people."""
        own_records = of_crm(self._order.crm).filter(is_adopted=False)
        own_records = own_records.exclude(deleted=True, state=Record.State.CONFIRMED)
        return remote_ids_among(own_records, remote_ids)


def of_crm(crm_id: int) -> QuerySet[Record]:
    """The records of all policies of a CRM."""
    policies = Policy.objects.filter(crm_id=crm_id).values("id")
    return Record.objects.filter(policy_id__in=policies)


def remote_ids_among(records: QuerySet[Record], remote_ids: Iterable[str]) -> set[str]:
    """The remote ids among these that one of the records has."""
    used_ids: set[str] = set()
    for page in chunks(sorted({*remote_ids} - {""}), claims.CHUNK):
        rows = records.filter(remote_id__in=page).order_by()
        used_ids.update(rows.values_list("remote_id", flat=True))
    return used_ids
