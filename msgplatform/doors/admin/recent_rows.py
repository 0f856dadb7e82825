"""Lists that look no further back than the newest rows when no index serves a filter.

Such tables are large and always in use. The list says how many rows it has searched; a person who
wants to look further back chooses a time.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Min, QuerySet
from django.http import HttpRequest

from msgplatform.doors.admin.base import BoundedList

MAX_RECENT_ROWS = 20_000  # newest rows to which a filter without an index is applied


class RecentRowsList(BoundedList):
    """A list that applies filters without an index to its newest rows only.

    `recent_limit` is the number of these rows, 0 if the filters were applied to all. The admin's
    method `indexed_parameters(selection, query)` names the parameters of the filters that an index
    serves; "q" is the search. The admin may have in `recent_by` the column by which rows are new,
    instead of the key.
    """

    recent_limit = 0

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        model_admin: Any = self.model_admin
        index_parameters = model_admin.indexed_parameters(request.GET, self.query)
        active_filters = [
            spec
            for spec in self.filter_specs
            if any(request.GET.get(str(name)) for name in spec.expected_parameters())
        ]
        other_filters = [
            spec
            for spec in active_filters
            if not index_parameters.intersection(spec.expected_parameters())
        ]
        if not other_filters and (not self.query or "q" in index_parameters):
            return rows
        # The newest rows that match the filters with an index; the other filters see only these.
        newest: Any = self.root_queryset
        for spec in active_filters:
            if spec not in other_filters:
                newest = spec.queryset(request, newest)
        if "q" in index_parameters:
            newest, _distinct = model_admin.get_search_results(request, newest, self.query)
        by = getattr(model_admin, "recent_by", "pk")
        first = first_recent(newest, by)
        if first is None:
            return rows
        self.recent_limit = MAX_RECENT_ROWS
        return rows.filter(**{f"{by}__gte": first})


def first_recent(rows: QuerySet[Any], by: str = "pk") -> Any:
    """The value at which the newest MAX_RECENT_ROWS rows begin; None when there are fewer."""
    newest: Any = rows.order_by(f"-{by}").values(by)[:MAX_RECENT_ROWS]
    totals = newest.aggregate(first=Min(by), count=Count(by))
    return None if totals["count"] < MAX_RECENT_ROWS else totals["first"]
