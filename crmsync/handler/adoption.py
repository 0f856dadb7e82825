"""Records of the CRM that people made, and that an order's records share.

A conflict leads to a record that the platform did not make: it is *adopted*. That is stored before
the record is sent with its id, so that a handler that is killed afterwards cannot make it the
platform's own. What is done with such a record is a choice of the policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from django.db import transaction
from django.db.models import QuerySet

from crmsync.adapters import base
from crmsync.models import Policy, Record
from crmsync.models.crms import MAX_REMOTE_ID
from crmsync.orders import Entry, Order
from msgplatform.core.data import claims, transactions
from msgplatform.core.data.chunks import chunks

_OnConflict = Policy.OnConflict


class Adoption:
    """All methods that read or write raise what an unavailable database raises."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._on_conflict: str = _OnConflict.FILL_EMPTY
        self._can_delete = False
        self._record_ids: set[int] = set()  # of the adopted ones

    def read(self, record_ids: Collection[int]) -> None:
        """Read the policy's choices; `record_ids` are those that are stored as adopted."""
        policies = Policy.objects.filter(pk=self._order.policy)
        for choices in policies.values_list("on_conflict", "delete_adopted"):
            self._on_conflict, self._can_delete = choices
        entries = [each for each in self._order.entries if each.record in record_ids]
        own_ids = self._own_ids(entry.remote_id for entry in entries)
        self._record_ids = {each.record for each in entries if each.remote_id not in own_ids}

    def is_adopted(self, entry: Entry) -> bool:
        return entry.record in self._record_ids

    def to_send(self, entry: Entry) -> base.Record:
        is_adopted = self.is_adopted(entry)
        should_fill_empty = is_adopted and self._on_conflict != _OnConflict.UPDATE
        return entry.to_send(is_adopted and not self._can_delete, should_fill_empty)

    def adopt(self, conflicts: Sequence[tuple[Entry, str]], own_ids: Collection[str]) -> set[int]:
        """Adopt records that were in conflict with these remote ids, unless the platform made them:
        `own_ids` are those of which the database does not know yet.

        Returns the records that are not to be sent again, because people decide.
        """
        known_ids = {*own_ids, *self._own_ids(remote_id for _, remote_id in conflicts)}
        foreign = [(entry, each) for entry, each in conflicts if each not in known_ids]
        if self._on_conflict == _OnConflict.DEAD:
            return {entry.record for entry, _ in foreign}
        if foreign:
            transactions.retrying(lambda: self._store(foreign))
            self._record_ids.update(entry.record for entry, _ in foreign)
        return set()

    def _store(self, foreign: Sequence[tuple[Entry, str]]) -> None:
        with transaction.atomic():
            for entry, remote_id in sorted(foreign, key=lambda each: each[0].record):
                rows = Record.objects.filter(pk=entry.record, claimed_by=self._order.claim)
                is_storable = len(remote_id) <= MAX_REMOTE_ID
                rows.update(is_adopted=True, **({"remote_id": remote_id} if is_storable else {}))

    def _own_ids(self, remote_ids: Iterable[str]) -> set[str]:
        """Of these ids in the CRM, those that the platform made for one of its records."""
        own_ids: set[str] = set()
        for some in chunks(sorted({*remote_ids} - {""}), claims.CHUNK):
            rows = of_crm(self._order.crm).filter(remote_id__in=some, is_adopted=False)
            own_ids.update(rows.order_by().values_list("remote_id", flat=True))
        return own_ids


def of_crm(crm_id: int) -> QuerySet[Record]:
    """The records of all policies of a CRM."""
    policies = Policy.objects.filter(crm_id=crm_id).values("id")
    return Record.objects.filter(policy_id__in=policies)
