"""CRMs: list with their state, form, test, resume."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from django.contrib import admin, messages
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from crmsync import presence, trials
from crmsync.admin.setup import probes
from crmsync.admin.setup.crm_form import KindField, kind_title, settings_help
from crmsync.admin.setup.sandbox import SandboxCrms
from crmsync.models import Crm, Policy, RecoveryEntry
from crmsync.orders import MainQueue, RetryQueue
from crmsync.setup.crms import CrmResource, addresses_of, mask_settings
from msgplatform.core.connections import RedisError
from msgplatform.core.data.counting import count_up_to
from msgplatform.core.durations import age
from msgplatform.core.queues import jobs
from msgplatform.doors.admin import AdminPage, HealthList, ResourceAdmin, audit, cells

# The count stops here: a CRM may have a million dead records.
MAX_COUNT = 10_000


class Health(msgspec.Struct, frozen=True):
    """The state of one CRM now. `waiting` and `retries` are work orders in its queues, None while
    Redis is unavailable; `live` is None when no handler serves the CRM."""

    live: presence.LiveCrm | None
    waiting: int | None
    retries: int | None
    dead: int


def read_health(rows: Sequence[Crm]) -> dict[int, Health]:
    """Health by CRM id: two queries to Redis and one to the database, for any number of rows."""
    keys = [(row.pk, int(RecoveryEntry.State.OPEN)) for row in rows]
    counts = count_up_to("recovery_log", "crm_id = %s AND state = %s", keys, MAX_COUNT)
    dead = dict(zip([row.pk for row in rows], counts, strict=True))
    names = {row.pk: (MainQueue(row.name).name, RetryQueue(row.name).name) for row in rows}
    try:
        depths = jobs.depths([name for pair in names.values() for name in pair])
        states = presence.crms.read_by_id()
    except RedisError:
        return {row.pk: Health(None, None, None, dead[row.pk]) for row in rows}
    return {
        pk: Health(states.get(pk), depths[main], depths[retry_queue], dead[pk])
        for pk, (main, retry_queue) in names.items()
    }


# -- as cells ------------------------------------------------------------------------------------
# Each cell takes a row with its `health`.
@admin.display(description=_("state"))
def state(row: Any) -> SafeString:
    """The state of the CRM, with the reason why it does nothing."""
    health: Health = row.health
    if row.paused_at:
        since = gettext("since %s") % cells.moment(row.paused_at)
        return cells.mark(gettext("paused"), "bad", below=f"{since}: {row.paused_because}")
    if not row.enabled:
        return cells.enabled(False)
    if health.waiting is None:
        return cells.unknown()
    live = health.live
    if live is None and not (health.waiting or health.retries):
        # A handler serves and reports a CRM only while the CRM has orders.
        return cells.mark(gettext("idle"), "plain", below=gettext("its queues are empty"))
    if live is None:
        return cells.mark(gettext("not served"), "warn", below=gettext("no handler reports it"))
    if live.is_open:
        below = gettext("next try in %s") % age(live.retry_in)
        return cells.mark(gettext("breaker open"), "bad", below=below)
    if live.held_for > 0:
        why = gettext("it wants fewer calls, or its quota of a day is used up; next in %s")
        below = why % age(live.held_for)
        return cells.mark(gettext("held back"), "warn", below=below)
    return cells.mark(gettext("working"), "good")


@admin.display(description=_("a call takes"))
def latency(row: Any) -> str:
    live = row.health.live
    return f"{live.latency * 1000:.0f} ms" if live and live.latency else cells.NOTHING


@admin.display(description=_("records a second"))
def speed(row: Any) -> str:
    live = row.health.live
    return gettext("%.0f/s") % live.per_second if live and live.per_second else cells.NOTHING


@admin.display(description=_("orders waiting"))
def queues(row: Any) -> str:
    """Orders that wait, and below the retries among them."""
    health: Health = row.health
    if health.waiting is None or health.retries is None:
        return cells.unknown()
    if not (health.waiting or health.retries):
        return cells.nothing("0")
    below = gettext("%d to be tried again") % health.retries if health.retries else ""
    return cells.lines(str(health.waiting), below)


class CrmList(HealthList):
    read_health = staticmethod(read_health)


@admin.register(Crm)
class CrmAdmin(ResourceAdmin):
    resource = CrmResource
    form_fields = {"adapter": KindField}
    field_options = {
        "settings": {"help_text": lazy(settings_help, str)()},
        "credentials": {"rows": 4},
    }
    readonly_fields = ["kind", "settings_text"]
    shown_instead = {"settings": "settings_text"}
    list_class = CrmList
    list_display = ["name", "kind", state, latency, speed, queues, "dead"]
    list_filter = ["enabled"]
    search_fields = ["name"]
    search_help_text = _("Name")
    sortable_by = ["name"]
    list_before_template = "admin/crmsync/crms_bar.html"
    change_form_outer_before_template = "admin/crmsync/crm_bar.html"
    change_form_after_template = "admin/crmsync/crm_test.html"
    further_pages = [
        AdminPage("test/", "crmsync_crm_test", "test_view", is_post=True),
        AdminPage("<int:pk>/test/", "crmsync_crm_test", "test_view", is_post=True),
        AdminPage("<int:pk>/lead/", "crmsync_crm_test_lead", probes.page),
        *SandboxCrms.pages(),
        AdminPage("<int:pk>/resume/", "crmsync_crm_resume", "resume_view", is_post=True),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The kind stays: the CRM's records are known by ids of this kind."""
        return [*super().get_readonly_fields(request, obj), *(["adapter"] if obj else [])]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        head = (None, {"fields": ["name", "kind", "enabled"]})  # the kind as it is called in lists
        return [head, *fieldsets[1:]] if obj else fieldsets

    def save_model(
        self, request: HttpRequest, obj: Crm, form: ModelForm[Crm], change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        # Saving corrects the settings, and resuming tests them: no CRM is resumed by accident.
        if obj.paused_at:
            messages.info(request, gettext("It is still paused: press Resume."))

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        context["test_url"] = reverse("admin:crmsync_crm_test", args=[row.pk] if row else [])
        if row:
            row.health = health = read_health([row])[row.pk]
            may_follow = request.user.has_perm("crmsync.view_recoveryentry")
            context["state"] = state(row)
            context["figures"] = [
                (gettext("orders waiting"), queues(row)),
                (gettext("a call takes"), latency(row)),
                (gettext("records a second"), speed(row)),
                (gettext("in flight"), health.live.in_flight if health.live else cells.NOTHING),
                (gettext("dead"), self.dead(row, link=may_follow)),
            ]
            context["may_operate"] = self.has_operate_permission(request)
            context["policies"] = Policy.objects.filter(crm=row).select_related("source", "crm")
        return super().render_change_form(request, context, *args, **kwargs)

    # -- asking the CRM --------------------------------------------------------------------------
    def test_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """Ask the CRM that the form describes; the form is not saved."""
        form = probes.posted_form(self, request, pk)
        if isinstance(form, HttpResponse):
            return form
        row: Crm = form.instance
        addresses = sorted(addresses_of(row.adapter, row.settings))
        audit(request, "crm_tested", row.name, addresses=addresses)
        result = trials.check(row)
        tone = {"ok": "good", "untested": "warn"}.get(result.kind, "bad")
        return probes.piece(request, "answer.html", tone=tone, text=result.message)

    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send to a paused CRM again, if it passes the test."""
        row = self.row_for(request, pk, "operate")
        result = trials.check(row)
        if result.is_usable:
            with transaction.atomic():
                # The CRM stays paused if it was paused again during the test.
                rows = Crm.objects.filter(pk=pk, paused_at=row.paused_at)
                is_resumed = row.paused_at and rows.update(paused_at=None, paused_because="")
                if is_resumed:
                    audit(request, "crm_resumed", row.name, paused_because=row.paused_because)
            if not is_resumed:
                messages.warning(request, gettext("The CRM was in another state by then."))
            elif result.kind == "ok":
                messages.success(request, gettext("%s works; its records go on.") % row)
            else:
                text = gettext("The records of %(crm)s go on. %(result)s")
                messages.warning(request, text % {"crm": row, "result": result.message})
        else:
            text = gettext("It stays paused. %s") % result.message
            messages.error(request, text)
        return redirect("admin:crmsync_crm_change", pk)

    # -- columns ---------------------------------------------------------------------------------
    kind = cells.column(_("kind"), lambda row: kind_title(row.adapter), "adapter")
    settings_text = cells.column(
        _("settings"),
        lambda row: format_html(
            '<pre class="json">{}</pre>',
            json.dumps(mask_settings(row.settings), indent=2, ensure_ascii=False),
        ),
    )

    @admin.display(description=_("dead"))
    def dead(self, row: Any, *, link: bool = True) -> str:
        count = row.health.dead
        if not count:
            return cells.nothing("0")
        text = f"{count}+" if count >= MAX_COUNT else str(count)
        mark = cells.mark(text, "bad")
        if not link:
            return mark
        url = reverse("admin:crmsync_recoveryentry_changelist")
        query = f"crm={row.pk}&state={RecoveryEntry.State.OPEN.value}"
        return format_html('<a href="{}?{}">{}</a>', url, query, mark)
