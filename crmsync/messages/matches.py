"""Which of some leads or records (at most 500) match the whole filter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from crmsync.messages import candidates, policies
from crmsync.messages.filters import Filter
from crmsync.messages.policies import Policies
from crmsync.models import Lead, Record


class Matches:
    def __init__(self, filter: Filter, known: Policies) -> None:
        self._filter, self._policies = filter, known

    def leads(self, ids: Sequence[int]) -> set[int]:
        """Which of these leads match."""
        rows = self._matching_leads.filter(id__in=ids)
        found = set(rows.order_by().values_list("id", flat=True))
        # Only leads were asked for, or none is left: no query about records.
        if not found or not self._filter.asks_records:
            return found
        # Records of the hive have their lead's id as key.
        keys = {policies.key_of(pk): pk for pk in found}
        records = Record.objects.filter(policy_id__in=self._hive, key__in=list(keys))
        return {keys[row.key] for row in self._fitting(records)}

    def records(self, ids: Sequence[int]) -> set[int]:
        """Which of these records match. To a business system belong the records of its leads, and
        those of its own policies."""
        found = self._fitting(Record.objects.filter(id__in=ids))
        biz = self._filter.biz
        if biz is None:
            return {row.id for row in found}
        keys = [policies.lead_of(row.key) for row in found if row.policy_id in self._hive]
        leads = Lead.objects.filter(id__in=[key for key in keys if key is not None], biz_id=biz)
        owned = set(leads.order_by().values_list("id", flat=True))
        return {
            row.id
            for row in found
            if (
                # A policy of all systems carries the leads of each of them.
                policies.lead_of(row.key) in owned
                if row.policy_id in self._hive
                else self._policies[row.policy_id].biz_id == biz
            )
        }

    def _fitting(self, rows: QuerySet[Record]) -> list[Any]:
        """Rows that match the part of the filter about records. That part is checked here, not in
        SQL: with more conditions a server may choose an index, such as that of a state with a
        million rows."""
        columns = ("id", "policy_id", "key", "state", "error_class", "remote_id")
        found = rows.order_by().values_list(*columns, named=True)
        filter = self._filter
        asked = {
            "key": filter.record_key, "state": filter.state, "error_class": filter.error_class,
            "remote_id": filter.remote_id,
        }  # fmt: skip
        given = {name: value for name, value in asked.items() if value is not None}
        return [
            row
            for row in found
            if row.policy_id in self._of_crm
            and (self._sent is None or row.id in self._sent)
            and all(getattr(row, name) == value for name, value in given.items())
        ]

    @cached_property
    def _of_crm(self) -> set[int]:
        return set(policies.of_crm(self._policies, self._filter.crm))

    @cached_property
    def _sent(self) -> set[int] | None:
        """The records that the operation in the filter was to send; None without one."""
        if self._filter.operation is None:
            return None
        return set(candidates.of_operation(self._filter.operation, self._policies))

    @cached_property
    def _hive(self) -> set[int]:
        return set(policies.of_hive(self._policies))

    @cached_property
    def _matching_leads(self) -> QuerySet[Lead]:
        filter, rows = self._filter, Lead.objects.all()
        if filter.name is not None:
            rows = candidates.named(rows, filter.name)
        asked = {
            "id": filter.id, "phone": filter.phone, "uid": filter.uid, "appkey": filter.appkey,
            "biz_id": filter.biz,
        }  # fmt: skip
        return rows.filter(**{name: value for name, value in asked.items() if value is not None})
