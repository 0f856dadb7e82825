"""Ids of leads or records that may match, descending, from the index that narrows most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from crmsync import orders
from crmsync.messages.filters import Filter
from crmsync.messages.policies import Policies, of_crm
from crmsync.models import Lead, Operation, Record
from msgplatform.core.data import sql

# So many rows can be read from an index of another order, and sorted. When more match, a search
# goes over all rows, where it finds enough of them soon.
FEW = 20_000
_LAST = "\U0010ffff"  # sorts behind every other character


class Leads:
    """Ids of leads; `matches` says which of them match the whole filter."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter

    def page(self, before: int, size: int) -> list[int]:
        """Up to `size` ids below `before`. With fewer there are no others."""
        filter = self._filter
        if filter.id is not None:
            return [filter.id] if _in_bounds(filter, filter.id, before) else []
        for column in ("phone", "uid", "appkey"):
            value = getattr(filter, column)
            if value is not None:
                return list(_ordered(Lead.objects.all(), filter, before, column, value)[:size])
        if filter.name is not None and self._named is not None:
            return [pk for pk in self._named if _in_bounds(filter, pk, before)][:size]
        if filter.biz is not None:
            rows = _ordered(Lead.objects.all(), filter, before, "biz_id", filter.biz)
        else:
            rows = _bounded(Lead.objects.all(), filter, before)
        return list(rows[:size])

    @cached_property
    def _named(self) -> list[int] | None:
        return _few(named(Lead.objects.all(), self._filter.name or ""))


class Records:
    """Ids of records, as `Leads`."""

    def __init__(self, filter: Filter, policies: Policies) -> None:
        self._filter, self._policies = filter, policies

    def page(self, before: int, size: int) -> list[int]:
        filter = self._filter
        for column, value in (("remote_id", filter.remote_id), ("key", filter.record_key)):
            if value is not None:
                return list(_ordered(Record.objects.all(), filter, before, column, value)[:size])
        if filter.operation is not None:
            return self._among(self._sent, before, size)
        if filter.state is not None and self._in_state is not None:
            return self._among(self._in_state, before, size)
        return list(_bounded(Record.objects.all(), filter, before)[:size])

    def _among(self, ids: Sequence[int], before: int, size: int) -> list[int]:
        return [pk for pk in ids if _in_bounds(self._filter, pk, before)][:size]

    @cached_property
    def _sent(self) -> list[int]:
        return of_operation(self._filter.operation or 0, self._policies)

    @cached_property
    def _in_state(self) -> list[int] | None:
        states = [] if self._filter.state is None else [self._filter.state]
        policies = of_crm(self._policies, self._filter.crm)
        return _few(Record.objects.filter(policy_id__in=policies, state__in=states))


def named(leads: QuerySet[Lead], prefix: str) -> QuerySet[Lead]:
    """Leads whose name begins so, read from the index on names."""
    if connections[leads.db].vendor == "mysql":
        return leads.filter(name__istartswith=prefix)  # LIKE; `startswith` compares bytes
    return leads.filter(name__gte=prefix, name__lt=prefix + _LAST)


def of_operation(operation_id: int, policies: Policies) -> list[int]:
    """The records whose requests an operation holds, descending."""
    operation = Operation.objects.filter(id=operation_id).first()
    if operation is None or operation.policy_id not in policies:
        return []
    prefix = policies[operation.policy_id].key_prefix
    keys = [request.key.removeprefix(prefix) for request in orders.load(bytes(operation.data))]
    rows = Record.objects.filter(policy_id=operation.policy_id, key__in=keys)
    return list(rows.order_by("-id").values_list("id", flat=True))


def _ordered(
    rows: QuerySet[Any], filter: Filter, before: int, column: str, value: Any
) -> QuerySet[Any, int]:
    """Ids of rows with this value, from the one index that holds the condition and the order."""
    return _bounded(sql.of_one(rows, column, value), filter, before).order_by(f"-{column}", "-id")


def _bounded(rows: QuerySet[Any], filter: Filter, before: int) -> QuerySet[Any, int]:
    wanted = rows.filter(id__lt=before, id__gte=filter.since or 0)
    return wanted.order_by("-id").values_list("id", flat=True)


def _in_bounds(filter: Filter, pk: int, before: int) -> bool:
    return (filter.since or 0) <= pk < before


def _few(rows: QuerySet[Any]) -> list[int] | None:
    """The rows' ids, descending; None when there are too many."""
    found = list(rows.order_by().values_list("id", flat=True)[: FEW + 1])
    return None if len(found) > FEW else sorted(found, reverse=True)
