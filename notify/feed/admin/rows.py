"""What the lists of posts and events share: how far they look back, users, times.

Both tables are large and always in use. A filter that no index serves is applied to the newest rows
only, and the list says so: to look further back, choose a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Min, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from msgplatform.admin import RowList, RowsAdmin, cells
from msgplatform.core.data import ids

# The permissions that the page of a user needs, because it shows posts.
USERS_PAGE = ("feed.view_feed", "feed.view_feeduser")
LOOKED_AT = 20_000  # newest rows to which a filter without an index is applied


class NewestList(RowList):
    """`looked_at`: to how many rows the filters were applied; 0: to all of them."""

    looked_at = 0

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        model_admin: Any = self.model_admin
        narrow = model_admin.indexed(request.GET, self.query)
        used = [
            spec
            for spec in self.filter_specs
            if any(request.GET.get(str(name)) for name in spec.expected_parameters())
        ]
        others = [spec for spec in used if not narrow.intersection(spec.expected_parameters())]
        if not others and (not self.query or "q" in narrow):
            return rows
        # The newest rows that match what an index serves; the other filters see only these.
        newest: Any = self.root_queryset
        for spec in used:
            if spec not in others:
                newest = spec.queryset(request, newest)
        if "q" in narrow:
            newest, _distinct = model_admin.get_search_results(request, newest, self.query)
        newest = newest.order_by("-pk").values("pk")[:LOOKED_AT]
        found = newest.aggregate(first=Min("pk"), count=Count("pk"))
        if found["count"] < LOOKED_AT:
            return rows
        self.looked_at = LOOKED_AT
        return rows.filter(pk__gte=found["first"])

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        user: Any = request.user
        may_see_users = user.has_perms(USERS_PAGE)
        for row in self.result_list:
            row.may_see_users = may_see_users


class HotRowsAdmin(RowsAdmin):
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[NewestList]:
        return NewestList

    def indexed(self, chosen: Mapping[str, str], query: str) -> set[str]:
        """Which of the chosen filters an index serves, by their parameters; "q" is the search."""
        raise NotImplementedError


def user_cell(row: Any) -> SafeString:
    """The row's user, with the system below; a link for those who may see the user's page."""
    system = str(row.biz)
    return cells.lines(user_link(system, row.uid) if row.may_see_users else row.uid, system)


def user_link(system: str, uid: str) -> SafeString:
    """The user's id as a link to the user's page."""
    query = urlencode({"system": system, "uid": uid})
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}?{}">{}</a>',
        reverse("admin:feed_users"), query, uid,
    )  # fmt: skip


def made_at(id: int) -> str:
    """When the id of a post or event was made, to the second: an id begins with its time."""
    return formats.date_format(timezone.localtime(ids.datetime_of(id)), "Y-m-d H:i:s")
