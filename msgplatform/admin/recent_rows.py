"""Lists that look no further back than the newest rows when no index serves what was chosen.

Such tables are large and always in use. The list says how many rows it has looked at; to look
further back, choose a time.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Min, QuerySet
from django.http import HttpRequest

from msgplatform.admin.base import BoundedList

MAX_RECENT_ROWS = 20_000  # newest rows to which a filter without an index is applied


class RecentRowsList(BoundedList):
    """`recent_limit`: to how many rows the filters were applied; 0: to all of them.

    Its admin has `indexed_parameters(selection, query)`: which of the chosen filters an index
    serves, by their parameters; "q" is the search. It may name in `recent_by` another column than
    the key by which rows are newer than others."""

    recent_limit = 0

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        model_admin: Any = self.model_admin
        indexed = model_admin.indexed_parameters(request.GET, self.query)
        active_filters = [
            spec
            for spec in self.filter_specs
            if any(request.GET.get(str(name)) for name in spec.expected_parameters())
        ]
        unindexed = [
            spec for spec in active_filters if not indexed.intersection(spec.expected_parameters())
        ]
        if not unindexed and (not self.query or "q" in indexed):
            return rows
        # The newest rows that match what an index serves; the other filters see only these.
        newest: Any = self.root_queryset
        for spec in active_filters:
            if spec not in unindexed:
                newest = spec.queryset(request, newest)
        if "q" in indexed:
            newest, _distinct = model_admin.get_search_results(request, newest, self.query)
        by = getattr(model_admin, "recent_by", "pk")
        first = first_recent(newest, by)
        if first is None:
            return rows
        self.recent_limit = MAX_RECENT_ROWS
        return rows.filter(**{f"{by}__gte": first})


def first_recent(rows: QuerySet[Any], by: str = "pk") -> Any:
    """Where the newest MAX_RECENT_ROWS rows begin; None when there are fewer."""
    newest: Any = rows.order_by(f"-{by}").values(by)[:MAX_RECENT_ROWS]
    totals = newest.aggregate(first=Min(by), count=Count(by))
    return None if totals["count"] < MAX_RECENT_ROWS else totals["first"]
