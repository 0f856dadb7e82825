"""Posts, read only: they are changed through the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import (
    AutocompleteFilter,
    ChoiceFilter,
    IdTimeFilter,
    PickFilter,
    cells,
    recent_rows,
    row_id,
)
from msgplatform.models import Biz
from notify.feed.admin import rows, users
from notify.feed.models import EventQueue, Feed, FeedUser
from notify.feed.models.posts import Topic

_STATUS = EventQueue.Status
TONES = {_STATUS.WAITING: "plain", _STATUS.HANDLED: "good", _STATUS.IN_SLICES: "warn",
         _STATUS.SET_ASIDE: "bad"}  # fmt: skip


class StateFilter(PickFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("there", gettext("not deleted")), ("edited", pgettext("state", "edited")),
                ("deleted", gettext("deleted"))]  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: QuerySet[Feed]) -> QuerySet[Feed]:
        match self.value():
            case "there":
                return queryset.filter(delete_date=None)
            case "edited":
                return queryset.filter(delete_date=None, update_date__isnull=False)
            case "deleted":
                return queryset.filter(delete_date__isnull=False)
        return queryset


@admin.register(Feed)
class PostAdmin(rows.HotRowsAdmin):
    content_fields = ("data",)
    list_display = ["id_text", "state", "author", "text", "topic", "kind", "posted"]
    list_display_links = ["id_text"]
    list_filter = [("biz", AutocompleteFilter), ("topic", ChoiceFilter), StateFilter,
                   ("id", IdTimeFilter)]  # fmt: skip
    search_help_text = _("Id of a post, or an author, whole")
    list_before_template = "admin/feed/posts_bar.html"
    page_template = "admin/feed/post.html"

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [path("users/", wrap(users.view(self)), name="feed_users"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feed]:
        return super().get_queryset(request).prefetch_related("biz")

    def indexed_parameters(self, selection: Mapping[str, str], query: str) -> set[str]:
        """An author's posts, and those of a system that has few."""
        found = {"id_since", "id_until"}
        biz = row_id(selection.get("biz__id__exact"))
        if query:
            found.add("q")
        elif biz is not None:
            of_system = Feed.objects.filter(biz_id=biz).order_by()
            if of_system[: recent_rows.MAX_RECENT_ROWS].count() < recent_rows.MAX_RECENT_ROWS:
                found.add("biz__id__exact")
        return found

    def search_rows(self, rows: QuerySet[Feed], text: str) -> QuerySet[Feed]:
        number = row_id(text)
        if number is not None and Feed.objects.filter(pk=number).exists():
            return rows.filter(pk=number)
        # Every system is named, because the index begins with the system.
        systems = list(Biz.objects.order_by().values_list("pk", flat=True))
        return rows.filter(biz_id__in=systems, uid=text)

    def add_details(self, rows: list[Any]) -> list[Any]:
        """Adds the event of each post; one that was handled long ago is deleted."""
        events = EventQueue.objects.in_bulk({row.pk for row in rows})
        for row in rows:
            row.event = events.get(row.pk)
        return rows

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        author = FeedUser.objects.filter(biz_id=row.biz_id, uid=row.uid).first()
        return {
            "author": author,
            "author_link": rows.user_link(str(row.biz), row.uid),
            "state": self.state(row),
            "event_tone": TONES[_STATUS(row.event.status)] if row.event else "",
            "is_vip": row.topic == Topic.VIP,
            "may_see_users": users.allowed(request),
            "may_see_events": request.user.has_perm("feed.view_eventqueue"),
        }

    @admin.display(description=_("post"))
    def id_text(self, row: Feed) -> str:
        return str(row.pk)

    @admin.display(description=_("posted"))
    def posted(self, row: Feed) -> str:
        return rows.made_at(row.pk)

    @admin.display(description=_("author"))
    def author(self, row: Feed) -> str:
        return rows.user_cell(row)

    @admin.display(description=_("application"))
    def kind(self, row: Feed) -> str:
        """With the kind below."""
        return cells.lines(row.app_id, row.src_type) or cells.NOTHING

    @admin.display(description=_("content"))
    def text(self, row: Feed) -> str:
        return cells.cut(row.data)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """What became of the post: deleted, or the status of its event."""
        if row.delete_date:
            return cells.mark(gettext("deleted"), "plain")
        edited = pgettext("state", "edited") if row.update_date else ""
        if row.event is None or row.event.status == _STATUS.HANDLED:
            return cells.mark(pgettext("state", "in timelines"), "good", below=edited)
        status = _STATUS(row.event.status)
        return cells.mark(str(status.label), TONES[status], below=edited)
