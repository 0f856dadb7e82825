"""Admin of what all flows share, and the base class of every admin in the platform."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin as UnfoldModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from msgplatform.api import keys
from msgplatform.models import Alert, ApiKey, AuditLog, Biz, BulkJob, MinuteCounter


class ModelAdmin(UnfoldModelAdmin):
    """The one place that names the theme."""

    list_per_page = 50
    show_full_result_count = False


class UndeletableAdmin(ModelAdmin):
    """Rows that messages refer to: they are switched off instead, and history stays readable."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class BoundedPaginator(Paginator):
    """Counts no further than a person pages: COUNT(*) of a hot table grows with the table."""

    MOST = 10_000

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[: self.MOST].count())


class ReadOnlyAdmin(ModelAdmin):
    """Rows that only the platform writes; lists of any size."""

    paginator = BoundedPaginator

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """For actions: nobody edits such a row, but who may change it may also act on it."""
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))


def audit(request: HttpRequest, action: str, target: str, **detail: Any) -> None:
    """Write down who did it."""
    AuditLog.objects.create(
        actor=request.user.get_username(), action=action, target=target[:200], detail=detail
    )


@admin.register(Biz)
class BizAdmin(UndeletableAdmin):
    list_display = ["name", "title", "enabled", "created_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "title"]


class ApiKeyForm(forms.ModelForm):
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
            raise forms.ValidationError(_("This time is over; choose one in the future."))
        return moment


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
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

    def save_model(self, request: HttpRequest, obj: ApiKey, form: ModelForm, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        created, plain = keys.create(obj.biz, obj.name, obj.scopes, obj.expires_at)
        obj.pk = created.pk
        obj.prefix = created.prefix
        audit(request, "api_key_created", str(created), biz=obj.biz.name, scopes=obj.scopes)
        messages.warning(
            request, _("The key is shown this once; copy it now: %(key)s") % {"key": plain}
        )

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

    def _move(
        self, request: HttpRequest, jobs: QuerySet[BulkJob], to: str, allowed: list[str]
    ) -> None:
        for job in jobs.filter(state__in=allowed):
            audit(request, f"bulk_{to}", str(job))
        count = jobs.filter(state__in=allowed).update(state=to)
        messages.success(request, _("%d jobs changed.") % count)

    @admin.action(description=_("Pause"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._move(request, queryset, "paused", ["pending", "running"])

    @admin.action(description=_("Resume"), permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._move(request, queryset, "pending", ["paused"])

    @admin.action(description=_("Cancel"), permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._move(request, queryset, "cancelled", ["pending", "running", "paused"])


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
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    pass
