"""What the lists of posts and events share: how far they look back, users, times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from msgplatform.admin import RowList, RowsAdmin, cells
from msgplatform.admin.recent_rows import RecentRowsList
from msgplatform.core.data import ids

# The permissions that the page of a user needs, because it shows posts.
USERS_PAGE = ("feed.view_feed", "feed.view_feeduser")


class HotRowList(RecentRowsList, RowList):
    """The rows of the page, each with whether this person may see its user."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        user: Any = request.user
        may_see_users = user.has_perms(USERS_PAGE)
        for row in self.result_list:
            row.may_see_users = may_see_users


class HotRowsAdmin(RowsAdmin):
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HotRowList]:
        return HotRowList

    def indexed_parameters(self, selection: Mapping[str, str], query: str) -> set[str]:
        """Which of the chosen filters an index serves, by their parameters; "q" is the search."""
        raise NotImplementedError


def user_cell(row: Any) -> SafeString:
    """The row's user, with the system below; a link for those who may see the user's page."""
    system = str(row.biz)
    return cells.lines(user_link(system, row.uid) if row.may_see_users else row.uid, system)


def user_link(system: str, uid: str) -> SafeString:
    """The user's id as a link to the user's page."""
    query = urlencode({"system": system, "uid": uid})
    return cells.link(f"{reverse('admin:feed_users')}?{query}", uid)


def made_at(id: int) -> str:
    """When the id of a post or event was made, to the second: an id begins with its time."""
    return formats.date_format(timezone.localtime(ids.datetime_of(id)), "Y-m-d H:i:s")
