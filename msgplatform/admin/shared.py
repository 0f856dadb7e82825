"""Admin of what all flows share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from msgplatform.admin.auditing import audit
from msgplatform.admin.base import ReadOnlyAdmin, UndeletableAdmin, next_page
from msgplatform.admin.filters import MomentFilter, PickFilter, row_id
from msgplatform.admin.key_scopes import may_give
from msgplatform.admin.recent_rows import RecentRowsList
from msgplatform.admin.secret_page import ShowsSecret
from msgplatform.api.access import keys
from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput
from msgplatform.models import ApiKey, Biz, BulkJob, MinuteCounter


@admin.register(Biz)
class BizAdmin(UndeletableAdmin):
    audit_name = "system"
    list_display = ["name", "title", "enabled", "validates_events", "created_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "title"]

    def save_model(
        self, request: HttpRequest, obj: Biz, form: ModelForm[Biz], change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        if change:  # it may have been disabled: its keys are cached in this process
            transaction.on_commit(keys.forget)

    def audit_action(self, form: Any, change: bool) -> str:
        if change and "enabled" in form.changed_data:
            return "system_enabled" if form.instance.enabled else "system_disabled"
        return super().audit_action(form, change)

    def audit_target(self, obj: Biz) -> str:
        return str(obj.name)


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    user: Any = None  # who fills it in; the admin sets it
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_(
            "What this key may do. Those that begin with manage: are for keys without a system."
        ),
    )

    class Meta:
        model = ApiKey
        fields = ["biz", "name", "scopes", "expires_at"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scopes = self.fields.get("scopes")
        if isinstance(scopes, forms.MultipleChoiceField):
            kept = self.instance.scopes if self.instance.pk else ()
            scopes.choices = [
                (name, f"{name}: {gettext(text)}")
                for name, text in (keys.scopes() | keys.management_scopes()).items()
                if name in kept or may_give(self.user, name)
            ]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        owner = cleaned.get("biz") if "biz" in self.fields else self.instance.biz
        for check in (
            lambda: keys.check_scopes(cleaned.get("scopes", []), is_management=owner is None),
            lambda: keys.check_expiry(cleaned.get("expires_at")),
        ):
            try:
                check()
            except InvalidInput as error:
                if error.field not in self.errors and not self.has_error("biz"):
                    self.add_error(error.field, str(error))
        return cleaned


@admin.register(ApiKey)
class ApiKeyAdmin(ShowsSecret):
    audit_name = "api_key"
    form = ApiKeyForm
    list_display = ["name", "biz", "prefix", "scopes", "last_used_at", "expires_at", "revoked_at"]
    list_filter = ["biz", "revoked_at"]
    list_select_related = ["biz"]
    search_fields = ["name", "prefix"]
    readonly_fields = ["prefix", "last_used_at", "revoked_at"]
    actions = ["revoke"]

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.user = request.user  # a class of this request's own
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        # A key that is being made has no prefix and no history yet.
        return [*fields, "biz"] if obj else []

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: ModelForm[ApiKey], change: bool
    ) -> None:
        if change:
            super().save_model(request, obj, form, change)
            transaction.on_commit(keys.forget)
            return
        # `keys.create` makes the row; `response_add` shows the plain text, which is stored nowhere.
        created, obj.plain = keys.create(obj.biz, obj.name, obj.scopes, obj.expires_at)  # type: ignore[attr-defined]
        obj.pk = created.pk
        obj.prefix = created.prefix

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self.show_secret(
            request,
            gettext("API key of %(system)s") % {"system": obj.biz}
            if obj.biz
            else gettext("Management key"),
            gettext("The key is shown this once; copy it now:"),
            obj.plain,  # type: ignore[attr-defined]
            next_page(request) or reverse("admin:msgplatform_apikey_changelist"),
        )

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        super().delete_model(request, obj)
        transaction.on_commit(keys.forget)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        super().delete_queryset(request, queryset)
        transaction.on_commit(keys.forget)

    @admin.action(description=_("Revoke"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        now = timezone.now()
        with transaction.atomic():
            for key in queryset.filter(revoked_at=None):
                changes = {"revoked_at": [None, now.isoformat()]}
                audit(request, "api_key_revoked", str(key), changes=changes)
            count = queryset.filter(revoked_at=None).update(revoked_at=now)
        keys.forget()
        text = ngettext(
            "%d key revoked; other processes refuse it within 30 seconds.",
            "%d keys revoked; other processes refuse them within 30 seconds.",
            count,
        )
        messages.success(request, text % count)


@admin.register(BulkJob)
class BulkJobAdmin(ReadOnlyAdmin):
    sentence_fields = ("filter", "error")
    empty_text = _("No bulk job has been started yet.")
    list_display = ["__str__", "state", "done", "of", "rate", "created_by", "created_at"]
    list_filter = ["state", "flow"]
    actions = ["pause", "resume", "cancel"]

    @admin.display(description=_("total"), ordering="total")
    def of(self, job: BulkJob) -> str:
        total = f"{job.total:,}"
        return gettext("more than %(n)s") % {"n": total} if job.more else total

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """A job has a page of its own, with its progress."""
        number = row_id(object_id)
        if number is None:
            raise Http404
        return redirect("console:job", number)

    def _set_state(self, request: HttpRequest, jobs: QuerySet[BulkJob], to: str) -> None:
        """Only jobs of flows in which the person may act on many messages, as for starting one."""
        able = [flow.name for flow in flows.all() if flow.is_bulk_allowed(request.user)]
        if jobs.exclude(flow__in=able).exists():
            raise PermissionDenied
        allowed = BulkJob.FROM[to]
        # Only jobs in these states: one that has ended meanwhile must not start again.
        with transaction.atomic():
            for job in jobs.filter(state__in=allowed):
                changes = {"state": [job.state, to]}
                audit(request, f"bulk_{to}", job.audit_target, changes=changes)
            count = jobs.filter(state__in=allowed).update(state=to)
        messages.success(request, ngettext("%d job changed.", "%d jobs changed.", count) % count)

    @admin.action(description=_("Pause"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, BulkJob.State.PAUSED)

    @admin.action(description=_("Resume"), permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, BulkJob.State.PENDING)

    @admin.action(description=_("Cancel"), permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, BulkJob.State.CANCELLED)


class CounterFilter(PickFilter):
    """The counters of which statistics are made: those that were counted are in no index."""

    title = _("counter")
    parameter_name = "name"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names: set[str] = set()
        for activity in (flow.health.activity for flow in flows.all() if flow.health.activity):
            names.update(name for measure in activity.stored for name in measure.counters)
            names.update(name for figure in activity.figures for name in figure.counters)
        return [(name, name) for name in sorted(names)]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[MinuteCounter]
    ) -> QuerySet[MinuteCounter]:
        return queryset.filter(name=self.value()) if self.value() else queryset


@admin.register(MinuteCounter)
class MinuteCounterAdmin(ReadOnlyAdmin):
    list_display = ["minute", "flow", "biz_id", "subject", "name", "value"]
    list_filter = ["flow", CounterFilter, ("minute", MomentFilter)]
    list_filter_submit = True
    list_before_template = "admin/newest_bar.html"
    sortable_by = ()
    newest_by = "minute"
    # The columns of an index: a database that sorts by the minute alone sorts the whole table.
    ordering = ["-minute", "-flow", "-biz_id", "-subject", "-name"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecentRowsList]:
        return RecentRowsList

    def indexed(self, chosen: Mapping[str, str], query: str) -> set[str]:
        return {"minute_since", "minute_until"}
