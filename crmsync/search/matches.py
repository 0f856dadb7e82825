"""Which of some leads or records (at most 500) match the whole filter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from crmsync.models import Lead, Record
from crmsync.search import candidates, policies
from crmsync.search.filters import Filter
from crmsync.search.policies import Policies


class Matches:
    def __init__(self, filter: Filter, known: Policies) -> None:
        self._filter, self._policies = filter, known

    def leads(self, ids: Sequence[int]) -> set[int]:
        """Those of these leads."""
        rows = self._matching_leads.filter(id__in=ids)
        found = set(rows.order_by().values_list("id", flat=True))
        if not found or not self._filter.asks_records:
            return found
        keys = {policies.key_of(pk): pk for pk in found}
        records = self._matching_records.filter(policy_id__in=self._hive, key__in=list(keys))
        return {keys[key] for key in records.order_by().values_list("key", flat=True)}

    def records(self, ids: Sequence[int]) -> set[int]:
        """Those of these records. A system's are those of its leads, and of its own policies."""
        rows = self._matching_records.filter(id__in=ids).order_by()
        found = list(rows.values_list("id", "policy_id", "key"))
        biz = self._filter.biz
        if biz is None:
            return {pk for pk, _policy, _key in found}
        keys = [policies.lead_of(key) for _pk, policy, key in found if policy in self._hive]
        leads = Lead.objects.filter(id__in=[key for key in keys if key is not None], biz_id=biz)
        owned = set(leads.order_by().values_list("id", flat=True))
        return {
            pk
            for pk, policy, key in found
            if (
                policies.lead_of(key) in owned
                if policy in self._hive
                else self._policies[policy].biz_id == biz
            )
        }

    @cached_property
    def _hive(self) -> set[int]:
        return set(policies.of_hive(self._policies))

    @cached_property
    def _matching_leads(self) -> QuerySet[Lead]:
        filter, rows = self._filter, Lead.objects.all()
        if filter.name is not None:
            rows = candidates.named(rows, filter.name)
        return _filtered(
            rows, id=filter.id, phone=filter.phone, uid=filter.uid, appkey=filter.appkey,
            biz_id=filter.biz,
        )  # fmt: skip

    @cached_property
    def _matching_records(self) -> QuerySet[Record]:
        filter = self._filter
        rows = Record.objects.filter(policy_id__in=policies.of_crm(self._policies, filter.crm))
        if filter.operation is not None:
            sent = candidates.of_operation(filter.operation, self._policies)
            rows = rows.filter(id__in=sent)
        return _filtered(
            rows, key=filter.key, state=filter.state, error_class=filter.error_class,
            remote_id=filter.remote_id,
        )  # fmt: skip


def _filtered(rows: QuerySet[Any], **asked: Any) -> QuerySet[Any]:
    return rows.filter(**{name: value for name, value in asked.items() if value is not None})
