"""Admin of what all flows share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from msgplatform.admin.base import ModelAdmin, ReadOnlyAdmin, UndeletableAdmin, audit
from msgplatform.admin.once import ShowsSecret
from msgplatform.api.access import keys
from msgplatform.core import flows
from msgplatform.models import Alert, ApiKey, AuditLog, Biz, BulkJob, MinuteCounter


@admin.register(Biz)
class BizAdmin(UndeletableAdmin):
    list_display = ["name", "title", "enabled", "created_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "title"]

    def save_model(
        self, request: HttpRequest, obj: Biz, form: ModelForm[Biz], change: bool
    ) -> None:
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if not change:
                audit(request, "system_created", obj.name)
            elif "enabled" in form.changed_data:
                action = "system_enabled" if obj.enabled else "system_disabled"
                audit(request, action, obj.name)
        if change:  # it may have been disabled: its keys are cached in this process
            keys.forget()


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=lambda: [(name, f"{name}: {text}") for name, text in keys.scopes().items()],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("What this key may do"),
    )

    class Meta:
        model = ApiKey
        fields = ["biz", "name", "scopes", "expires_at"]

    def clean_expires_at(self) -> datetime | None:
        moment: datetime | None = self.cleaned_data["expires_at"]
        if moment and moment <= timezone.now():
            raise forms.ValidationError(_("This time is in the past; choose one in the future."))
        return moment


@admin.register(ApiKey)
class ApiKeyAdmin(ShowsSecret):
    form = ApiKeyForm
    list_display = ["name", "biz", "prefix", "scopes", "last_used_at", "expires_at", "revoked_at"]
    list_filter = ["biz", "revoked_at"]
    list_select_related = ["biz"]
    search_fields = ["name", "prefix"]
    readonly_fields = ["prefix", "last_used_at", "revoked_at"]
    actions = ["revoke"]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        return [*fields, "biz"] if obj else fields

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: ModelForm[ApiKey], change: bool
    ) -> None:
        if change:
            before = sorted(form.initial["scopes"])
            with transaction.atomic():
                super().save_model(request, obj, form, change)
                detail = {"fields": sorted(form.changed_data)}
                if "scopes" in form.changed_data:
                    detail |= {"scopes_before": before, "scopes": sorted(obj.scopes)}
                audit(request, "api_key_changed", str(obj), **detail)
            keys.forget()
            return
        # `keys.create` makes the row; `response_add` shows the plain text, which is stored nowhere.
        created, obj.plain = keys.create(obj.biz, obj.name, obj.scopes, obj.expires_at)  # type: ignore[attr-defined]
        obj.pk = created.pk
        obj.prefix = created.prefix
        audit(request, "api_key_created", str(created), biz=obj.biz.name, scopes=obj.scopes)

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self.show_secret(
            request,
            _now("API key of %(system)s") % {"system": obj.biz},
            _now("The key is shown this once; copy it now:"),
            obj.plain,  # type: ignore[attr-defined]
            reverse("admin:msgplatform_apikey_changelist"),
        )

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        audit(request, "api_key_deleted", str(obj), biz=obj.biz.name)
        super().delete_model(request, obj)
        keys.forget()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset.select_related("biz"):
            audit(request, "api_key_deleted", str(key), biz=key.biz.name)
        super().delete_queryset(request, queryset)
        keys.forget()

    @admin.action(description=_("Revoke"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset.filter(revoked_at=None):
            audit(request, "api_key_revoked", str(key))
        count = queryset.filter(revoked_at=None).update(revoked_at=timezone.now())
        keys.forget()
        messages.success(
            request, _("%d keys revoked; other processes refuse them within 30 seconds.") % count
        )


@admin.register(BulkJob)
class BulkJobAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "state", "done", "total", "rate", "created_by", "created_at"]
    list_filter = ["state", "flow"]
    actions = ["pause", "resume", "cancel"]

    def _set_state(
        self, request: HttpRequest, jobs: QuerySet[BulkJob], to: str, allowed: list[str]
    ) -> None:
        # Only jobs in these states: one that has ended meanwhile must not start again.
        for job in jobs.filter(state__in=allowed):
            audit(request, f"bulk_{to}", str(job))
        count = jobs.filter(state__in=allowed).update(state=to)
        messages.success(request, _("%d jobs changed.") % count)

    @admin.action(description=_("Pause"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, "paused", ["pending", "running"])

    @admin.action(description=_("Resume"), permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        """Only jobs of flows whose messages the person may see, the same as for starting one."""
        user: Any = request.user
        visible = [flow.name for flow in flows.all() if user.has_perm(flow.permission)]
        if queryset.exclude(flow__in=visible).exists():
            raise PermissionDenied
        self._set_state(request, queryset, "pending", ["paused"])

    @admin.action(description=_("Cancel"), permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, "cancelled", ["pending", "running", "paused"])


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    list_display = ["subject", "kind", "count", "first_at", "last_at", "resolved_at"]
    list_filter = ["kind", "resolved_at"]
    actions = ["resolve"]

    @admin.action(description=_("Mark as resolved"), permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        count = queryset.filter(resolved_at=None).update(resolved_at=timezone.now(), open_key=None)
        audit(request, "alerts_resolved", str(count))
        messages.success(request, _("%d alerts resolved.") % count)


@admin.register(MinuteCounter)
class MinuteCounterAdmin(ReadOnlyAdmin):
    list_display = ["minute", "flow", "biz_id", "subject", "name", "value"]
    list_filter = ["flow", "name"]
    ordering = ["-minute"]


@admin.register(AuditLog)
class AuditLogAdmin(ReadOnlyAdmin):
    list_display = ["at", "actor", "action", "target"]
    list_filter = ["action"]
    search_fields = ["actor", "target"]


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]  # none at run time
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    pass
