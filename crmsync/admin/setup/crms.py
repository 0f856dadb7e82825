"""CRMs: list with their state, form, test, resume."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync.adapters.base import Check
from crmsync.adapters.registry import open_adapter
from crmsync.admin.setup import crm_form, crm_health, probes, trial_lead
from crmsync.admin.setup.crm_form import CrmForm, kind_title
from crmsync.models import Crm, Policy, RecoveryEntry
from crmsync.policies import mapping
from msgplatform.admin import HealthList, UndeletableAdmin, audit, cells
from msgplatform.core.errors import InvalidInput, PlatformError


class CrmList(HealthList):
    read_health = staticmethod(crm_health.read)


@admin.register(Crm)
class CrmAdmin(UndeletableAdmin):
    form = CrmForm
    list_display = ["name", "kind", "state", "latency", "speed", "queues", "dead"]
    list_filter = ["enabled"]
    search_fields = ["name"]
    search_help_text = _("Name")
    sortable_by = ["name"]
    list_before_template = "admin/crmsync/crms_bar.html"
    change_form_outer_before_template = "admin/crmsync/crm_bar.html"
    change_form_after_template = "admin/crmsync/crm_test.html"
    fieldsets = [
        (None, {"fields": ["name", "adapter", "enabled"]}),
        (_("Pace and patience"), {"fields": ["concurrency", "retry_seconds"]}),
        (_("Connection"), {"fields": ["settings", "credentials"]}),
    ]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HealthList]:
        return CrmList

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The queues are named after the CRM, and its records are known by ids of its kind."""
        return ["name", "adapter", "kind"] if obj else []

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        head = (None, {"fields": ["name", "kind" if obj else "adapter", "enabled"]})
        fieldsets = [head, *self.fieldsets[1:]]
        if obj is None or self.has_change_permission(request, obj):
            return fieldsets
        # People who may only look see the stored values, so the secrets are left out.
        return [*fieldsets[:2], (fieldsets[2][0], {"fields": ["settings"]})]

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("test/", wrap(self.test_view), name="crmsync_crm_test_new"),
            path("<int:pk>/test/", wrap(self.test_view), name="crmsync_crm_test"),
            path("<int:pk>/lead/", wrap(trial_lead.page(self)), name="crmsync_crm_test_lead"),
            path("<int:pk>/resume/", wrap(self.resume_view), name="crmsync_crm_resume"),
            *super().get_urls(),
        ]

    def save_model(
        self, request: HttpRequest, obj: Crm, form: ModelForm[Crm], change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        # Saving corrects, resuming tests: two steps, so that a CRM is not resumed by accident.
        if obj.paused_at:
            messages.info(request, gettext("It is still paused: press Resume."))

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        name, url_arguments = (
            ("crmsync_crm_test", [row.pk]) if row else ("crmsync_crm_test_new", [])
        )
        context["test_url"] = reverse(f"admin:{name}", args=url_arguments)
        if row:
            health = crm_health.read([row])[row.pk]
            may_follow = request.user.has_perm("crmsync.view_recoveryentry")
            context["state"] = crm_health.state(row, health)
            context["figures"] = [
                (gettext("orders waiting"), crm_health.queues(health)),
                (gettext("a call takes"), crm_health.latency(health)),
                (gettext("records a second"), crm_health.speed(health)),
                (gettext("in flight"), health.live.in_flight if health.live else cells.NOTHING),
                (gettext("dead"), self._dead(row, health, link=may_follow)),
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
        addresses = sorted(crm_form.addresses_of(row.adapter, row.settings))
        audit(request, "crm_tested", row.name, addresses=addresses)
        result = _check(row)
        tone = {"ok": "good", "untested": "warn"}.get(result.kind, "bad")
        return probes.piece(request, "answer.html", tone=tone, text=result.message)

    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send to a paused CRM again, if it passes the test."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = Crm.objects.filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("There is no such CRM."))
        if not self.has_operate_permission(request):
            raise PermissionDenied
        result = _check(row)
        if result.is_usable:
            with transaction.atomic():
                # Not if it was paused anew during the test.
                rows = Crm.objects.filter(pk=pk, paused_at=row.paused_at)
                if rows.update(paused_at=None, paused_because=""):
                    audit(request, "crm_resumed", row.name, paused_because=row.paused_because)
            if result.kind == "ok":
                messages.success(request, gettext("%s works; its records go on.") % row)
            else:
                text = gettext("The records of %(crm)s go on. %(result)s")
                messages.warning(request, text % {"crm": row, "result": result.message})
        else:
            text = gettext("It stays paused. %s") % result.message
            messages.error(request, text)
        return redirect("admin:crmsync_crm_change", pk)

    # -- columns ---------------------------------------------------------------------------------
    @admin.display(description=_("kind"), ordering="adapter")
    def kind(self, row: Crm) -> str:
        return kind_title(row.adapter)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> SafeString:
        return crm_health.state(row, row.health)

    @admin.display(description=_("a call takes"))
    def latency(self, row: Any) -> str:
        return crm_health.latency(row.health)

    @admin.display(description=_("records a second"))
    def speed(self, row: Any) -> str:
        return crm_health.speed(row.health)

    @admin.display(description=_("orders waiting"))
    def queues(self, row: Any) -> str:
        return crm_health.queues(row.health)

    @admin.display(description=_("dead"))
    def dead(self, row: Any) -> str:
        return self._dead(row, row.health)

    def _dead(self, row: Crm, health: crm_health.Health, *, link: bool = True) -> str:
        if not health.dead:
            return cells.nothing("0")
        text = f"{health.dead}+" if health.dead >= crm_health.COUNTED else str(health.dead)
        mark = cells.mark(text, "bad")
        if not link:
            return mark
        url = reverse("admin:crmsync_recoveryentry_changelist")
        query = f"crm={row.pk}&state={RecoveryEntry.State.OPEN.value}"
        return format_html('<a href="{}?{}">{}</a>', url, query, mark)


def _check(row: Crm) -> Check:
    """Test a CRM's settings and credentials, and the fields of its mappings."""
    names: list[str] = []
    for text in Policy.objects.filter(crm_id=row.pk).values_list("mapping", flat=True):
        with suppress(InvalidInput):  # an alert about the policy says so
            names += mapping.parse(text).fields
    try:
        settings, credentials = row.settings, row.credentials

        def work() -> Check:
            adapter = open_adapter(row.adapter, settings, credentials)
            try:
                return adapter.check(list(dict.fromkeys(names)))
            finally:
                adapter.close()

        return probes.ask(work)
    except PlatformError as error:
        return Check("settings", probes.sentence(error))
