"""The queue of events: waiting events and their age, events that were set aside and the reason; the
actions replay and dismiss."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from msgplatform.core.data import ids, sql
from msgplatform.core.durations import age
from msgplatform.doors.admin import (
    AdminPage,
    AutocompleteFilter,
    ChoiceFilter,
    IdTimeFilter,
    PickFilter,
    RowsAdmin,
    audit,
    cells,
    row_id,
)
from msgplatform.doors.admin.pages import show_page
from msgplatform.doors.admin.rows import RecentRowsList
from notify.feed.actions.actions import resend_events
from notify.feed.admin import scheduler, users
from notify.feed.messages.states import TONES
from notify.feed.models import EventQueue
from notify.feed.monitor import backlog

_STATUS = EventQueue.Status
_RARE = (str(_STATUS.IN_SLICES), str(_STATUS.SET_ASIDE))
MAX_SELECTED = 500  # events of a selection; more are a bulk job's work
MAX_COUNTED = 10_000  # events of each topic and status, in the bar: a backlog may be a million
_MAX_SHOWN = 20  # events of a confirmation
_SET_ASIDE = str(_STATUS.SET_ASIDE)
# A filter of the list → the field of a bulk job.
_BULK = {"topic__exact": "topic", "biz__id__exact": "biz", "q": "user", "qid_since": "since",
         "qid_until": "until"}  # fmt: skip
_OTHER_PARAMETERS = ("status__exact", "age", "p", "all", "o", "e")
_AGES = {
    "1m": (timedelta(minutes=1), _("a minute")),
    "10m": (timedelta(minutes=10), _("10 minutes")),
    "1h": (timedelta(hours=1), _("an hour")),
    "1d": (timedelta(days=1), _("a day")),
}


class StatusFilter(ChoiceFilter):
    """Names every topic, because the index begins with the topic."""

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[EventQueue]
    ) -> QuerySet[EventQueue]:
        rows: QuerySet[EventQueue] | None = super().queryset(request, queryset)
        if rows is None or rows is queryset:
            return queryset
        return rows.filter(topic__in=EventQueue.Topic.values)


class AgeFilter(PickFilter):
    title = _("age: longer than")
    parameter_name = "age"
    options = [(key, words) for key, (_span, words) in _AGES.items()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[EventQueue]
    ) -> QuerySet[EventQueue]:
        span, _words = _AGES.get(str(self.value()), (None, ""))
        if span is None:
            return queryset
        return queryset.filter(qid__lt=ids.first_id_at(timezone.now() - span))


class EventList(RecentRowsList):
    """The rows of the page. `may_see_users` of a row: True if this person may see users' pages."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        may_see_users = users.is_allowed(request)
        for row in self.result_list:
            row.may_see_users = may_see_users


@admin.register(EventQueue)
class EventAdmin(RowsAdmin):
    list_display = ["id_text", "status_mark", "what", "user", "created", "waits", "done_up_to"]
    list_display_links = ["id_text"]
    list_filter = [("topic", ChoiceFilter), ("status", StatusFilter), AgeFilter,
                   ("kind", ChoiceFilter), ("biz", AutocompleteFilter),
                   ("qid", IdTimeFilter)]  # fmt: skip
    search_fields = ["qid"]
    search_help_text = _("The whole id of an event, of a post or of a user")
    list_before_template = "admin/feed/events_bar.html"
    page_template = "admin/feed/event.html"
    list_class = EventList
    actions = ["replay"]
    further_pages = [
        AdminPage("scheduler/", "feed_scheduler", scheduler.view),
        AdminPage("users/", "feed_users", users.view),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[EventQueue]:
        return super().get_queryset(request).prefetch_related("biz")

    def indexed_parameters(self, filters: Mapping[str, str], query: str) -> set[str]:
        """A status counts as indexed if few events have it, or together with a topic."""
        names = {"qid_since", "qid_until", "age"}
        status = filters.get("status__exact")
        if status and (filters.get("topic__exact") or status in _RARE):
            names |= {"topic__exact", "status__exact"}
        if _is_event(query):
            names.add("q")
        return names

    def search_rows(
        self, request: HttpRequest, rows: QuerySet[EventQueue], text: str
    ) -> QuerySet[EventQueue]:
        return rows.filter(pk=int(text)) if _is_event(text) else rows.filter(uid=text)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        queue = queue_lines()
        has_set_aside = any(line.set_aside != "0" for line in queue)
        bulk_url, dismiss_url = (
            _bulk_url(request.GET, action) if has_set_aside else ""
            for action in ("resend", "dismiss")
        )
        context = {
            "queue": queue, "set_aside": _SET_ASIDE, "bulk_url": bulk_url,
            "dismiss_url": dismiss_url,
        }  # fmt: skip
        return super().changelist_view(request, context | (extra_context or {}))

    # -- replaying -------------------------------------------------------------------------------
    @admin.action(description=_("Replay events that were set aside"), permissions=["operate"])
    def replay(self, request: HttpRequest, queryset: QuerySet[EventQueue]) -> HttpResponse | None:
        """Replay exactly the events that were shown. The confirmation names the events, also after
        "select all"."""
        selection = queryset.order_by().values_list("pk", flat=True)[: MAX_SELECTED + 1]
        qids = sorted(selection)
        if len(qids) > MAX_SELECTED:
            text = gettext("More than %d are selected: use a bulk job, which can be paced and "
                           "stopped.")  # fmt: skip
            messages.warning(request, text % MAX_SELECTED)
            return None
        if not qids:  # the confirmation stayed open until retention had deleted all of them
            messages.info(request, gettext("There is nothing to replay any more."))
            return None
        if "confirmed" not in request.POST:
            return self.confirmation(request, qids)
        count = resend_events(qids)
        if count:
            audit(request, "events_replayed", str(count), ids=[str(qid) for qid in qids])
            text = ngettext("%d event waits again.", "%d events wait again.", count)
            messages.success(request, text % count)
        if count_left := len(qids) - count:
            text = ngettext(
                "%d was left alone: only events that were set aside are replayed.",
                "%d were left alone: only events that were set aside are replayed.",
                count_left,
            )
            messages.info(request, text % count_left)
        # The action came from the page of one event: go back to that page.
        if request.POST.get("back_to") == str(qids[0]):
            return redirect("admin:feed_eventqueue_change", qids[0])
        return None

    def confirmation(self, request: HttpRequest, qids: Sequence[int]) -> HttpResponse:
        """Asks before anything is replayed."""
        events = EventQueue.objects.filter(qid__in=qids, status=_STATUS.SET_ASIDE).order_by("qid")
        return show_page(
            self, request, "admin/feed/replay.html", gettext("Are you sure?"),
            rows=events[:_MAX_SHOWN], count=events.count(), others=len(qids) - events.count(),
            more=max(0, events.count() - _MAX_SHOWN), ids=[str(qid) for qid in qids],
            checkbox=ACTION_CHECKBOX_NAME, back_to=request.POST.get("back_to", ""),
            list=reverse("admin:feed_eventqueue_changelist"),
        )  # fmt: skip

    # -- one -------------------------------------------------------------------------------------
    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        is_open = row.status in EventQueue.OPEN
        seconds = (sql.now() - row.create_date).total_seconds() if is_open else None
        return {
            "tone": TONES[_STATUS(row.status)],
            "user_link": users.link(row.biz.name, row.uid),
            "waits": age(max(0.0, seconds)) if seconds is not None else "",
            "is_set_aside": row.status == _STATUS.SET_ASIDE,
            "is_of_post": row.kind == EventQueue.Kind.POST,
            "checkbox": ACTION_CHECKBOX_NAME,
            "may_see_users": users.is_allowed(request),
            "may_see_posts": request.user.has_perm("feed.view_feed"),
        }

    id_text = cells.column(_("event"), lambda row: str(row.pk))

    @admin.display(description=_("status"))
    def status_mark(self, row: EventQueue) -> str:
        """The status, with the reason below."""
        status = _STATUS(row.status)
        reason = row.reason if status == _STATUS.SET_ASIDE else ""
        return cells.mark(str(status.label), TONES[status], below=reason)

    @admin.display(description=_("what"))
    def what(self, row: EventQueue) -> str:
        """The kind, with the topic below."""
        kind = str(EventQueue.Kind(row.kind).label)
        return cells.lines(kind, str(EventQueue.Topic(row.topic).label))

    @admin.display(description=_("user"))
    def user(self, row: EventQueue) -> str:
        """The user, as a link for people who may see the user's page, with the system below."""
        may_see_users: bool = row.may_see_users  # type: ignore[attr-defined]
        user = users.link(row.biz.name, row.uid) if may_see_users else row.uid
        return cells.lines(user, str(row.biz))

    @admin.display(description=_("created"))
    def created(self, row: EventQueue) -> str:
        return formats.date_format(timezone.localtime(ids.datetime_of(row.pk)), "Y-m-d H:i:s")

    @admin.display(description=_("waits for"))
    def waits(self, row: EventQueue) -> str:
        if row.status == _STATUS.HANDLED:
            return cells.NOTHING
        seconds = (timezone.now() - row.create_date).total_seconds()
        return age(max(0.0, seconds))

    done_up_to = cells.column(_("done up to"), lambda row: row.position or cells.NOTHING)


class QueueLine(msgspec.Struct, frozen=True):
    """Counts are texts: "10000+" when there are more than MAX_COUNTED."""

    topic: str
    title: str
    waiting: str
    in_slices: str
    set_aside: str
    oldest_seconds: float | None
    is_late: bool


def queue_lines() -> list[QueueLine]:
    """The bar above the list: a line for each topic."""
    counts = backlog.counts(MAX_COUNTED + 1)
    oldest = backlog.oldest(sql.now())

    def count(topic: str, status: int) -> str:
        value = counts[topic, status]
        return f"{MAX_COUNTED}+" if value > MAX_COUNTED else str(value)

    return [
        QueueLine(
            topic=str(topic),
            title=str(topic.label),
            waiting=count(topic, _STATUS.WAITING),
            in_slices=count(topic, _STATUS.IN_SLICES),
            set_aside=count(topic, _STATUS.SET_ASIDE),
            oldest_seconds=oldest.get(topic),
            is_late=oldest.get(topic, 0.0) > settings.FEED_LATE_SECONDS,
        )
        for topic in EventQueue.Topic
    ]


def _is_event(text: str) -> bool:
    number = row_id(text.strip())
    return number is not None and EventQueue.objects.filter(pk=number).exists()


def _bulk_url(parameters: QueryDict, action: str) -> str:
    """The address of a bulk job with the list's filters; '' when a job cannot have the same."""
    form_values = {
        _BULK[name]: str(value) for name, value in parameters.items() if name in _BULK and value
    }
    if _is_event(form_values.get("user", "")):
        form_values["ids"] = form_values.pop("user")
    others = {name for name, value in parameters.items() if value} - {*_BULK, *_OTHER_PARAMETERS}
    if others or parameters.get("status__exact", _SET_ASIDE) not in ("", _SET_ASIDE):
        return ""
    span, _words = _AGES.get(parameters.get("age", ""), (None, ""))
    if span is not None:
        before = timezone.localtime(timezone.now() - span).replace(tzinfo=None)
        earlier = before.isoformat(timespec="seconds")
        form_values["until"] = min(form_values.get("until", earlier), earlier)
    query = urlencode({"action": action, "count": "1"} | form_values)
    return f"{reverse('console:bulk-flow', args=['feed'])}?{query}"
