"""People and their groups. Nobody gives away more than they have themselves."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelect2MultipleWidget, UnfoldBooleanSwitchWidget

from msgplatform import person_limits
from msgplatform.doors.admin.auditing import SECRET, audit
from msgplatform.doors.admin.confirmation import Confirmed, confirmed
from msgplatform.models import Biz, Role

admin.site.unregister([User, Group])
# Of django-allauth. Their rows are shown with the person and not as tables, so that permissions for
# them give nothing; these modules register them.
_WITHOUT_PAGES = ("account", "mfa", "socialaccount", "usersessions")
for _module in _WITHOUT_PAGES:
    import_module(f"allauth.{_module}.admin")
    for _model in apps.get_app_config(_module).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)
# Of the form that makes a user: the password again, and whether there is one.
_NOT_AUDITED = ("password2", "usable_password")


def _held_by(user: Any) -> QuerySet[Permission]:
    """The permissions of a person; an inactive one keeps them, to be active again."""
    if user.is_superuser:
        return Permission.objects.all()
    return Permission.objects.filter(Q(user=user) | Q(group__user=user)).distinct()


def _is_lacking(request: HttpRequest, permissions: QuerySet[Permission]) -> bool:
    """True if the person who asks lacks one of these permissions."""
    user: Any = request.user
    if user.is_superuser:
        return False
    return permissions.exclude(pk__in=_held_by(user).values("pk")).exists()


class OwnPermissionsOnly(Confirmed):
    """Offers only permissions that the person has, and groups without any other permission."""

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_manytomany(db_field, request, **kwargs)
        user: Any = request.user
        if field is None:
            return field
        if db_field.related_model is Permission:
            field.queryset = field.queryset.exclude(content_type__app_label__in=_WITHOUT_PAGES)
        if user.is_superuser:
            return field
        own_ids = _held_by(user).values("pk")
        rows: Any = field.queryset
        if db_field.related_model is Group:
            other_permissions = Permission.objects.exclude(pk__in=own_ids)
            rows = rows.exclude(
                pk__in=Group.objects.filter(permissions__in=other_permissions).values("pk")
            )
        elif db_field.related_model is Permission:
            rows = rows.filter(pk__in=own_ids)
        field.queryset = rows
        return field


class LimitedUserForm(UserChangeForm):  # type: ignore[misc]  # it has no types
    """A person, with the business systems to which they are limited."""

    is_limited = forms.BooleanField(
        label=_("Limited to some business systems"),
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text=_("The person sees and changes only what belongs to the systems chosen below."),
    )
    systems = forms.MultipleChoiceField(
        label=_("Business systems"),
        required=False,
        widget=UnfoldAdminSelect2MultipleWidget,
        help_text=_("Of somebody who is limited. Nothing chosen: the person sees no system."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Biz.objects.order_by("name").values_list("name", flat=True)
        if "systems" in self.fields:  # not on the page for people who may only look
            self.fields["systems"].choices = [(name, name) for name in names]
        self.initial |= self.further_values(self.instance)

    @staticmethod
    def further_values(row: User) -> Mapping[str, Any]:
        """The fields that are no columns, as they are stored."""
        limit = person_limits.limit_of(row)
        return {"is_limited": limit is not None, "systems": sorted(limit or ())}

    def clean(self) -> Any:
        values = super().clean() or self.cleaned_data
        if values.get("systems") and not values.get("is_limited"):
            text = gettext("Switch on “Limited to some business systems”, or choose no system.")
            self.add_error("systems", text)
        return values


@admin.register(User)
class UserAdmin(DjangoUserAdmin, OwnPermissionsOnly):  # type: ignore[misc, type-arg]  # has no types
    form = LimitedUserForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    change_form_outer_before_template = "admin/person_bar.html"
    readonly_fields = ["last_login", "date_joined"]
    list_display = [
        "username", "email", "first_name", "last_name", "is_staff", "limited_to",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.prefetch_related("limit__systems")

    @admin.display(description=_("limited to"), empty_value="")
    def limited_to(self, row: User) -> str:
        """The business systems of somebody who is limited; a dash for somebody who sees none."""
        limit = getattr(row, "limit", None)
        if limit is None:
            return ""
        return ", ".join(each.name for each in limit.systems.all()) or "–"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The limit has a part of its own, for people who may change it."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or not self.has_change_permission(request, obj):
            return fieldsets
        return [*fieldsets, (_("Limit"), {"fields": ["is_limited", "systems"]})]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if {"is_limited", "systems"}.intersection(form.changed_data):
            values = form.cleaned_data
            system_names = values["systems"] if values["is_limited"] else None
            person_limits.set_limit(form.instance, system_names)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = [*super().get_readonly_fields(request, obj)]
        user: Any = request.user
        return fields if user.is_superuser else [*fields, "is_superuser"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """True unless the other person may do more: whoever sets their password could log in as
        them."""
        return super().has_change_permission(request, obj) and not self._has_more_rights(
            request, obj
        )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        can_delete = super().has_delete_permission(request, obj) and not self._has_more_rights(
            request, obj
        )
        return can_delete and obj != request.user

    def _has_more_rights(self, request: HttpRequest, obj: Any) -> bool:
        user: Any = request.user
        if obj is None or user.is_superuser:
            return False
        return obj.is_superuser or _is_lacking(request, _held_by(obj))

    def audit_changes(self, form: Any, change: bool) -> dict[str, Any]:
        changes = super().audit_changes(form, change)
        return {name: values for name, values in changes.items() if name not in _NOT_AUDITED}

    @confirmed
    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        with transaction.atomic():
            response: HttpResponse = super().user_change_password(request, id, form_url)
            if request.method == "POST" and response.status_code == 302:
                user = User.objects.get(pk=id)
                changes = {"password": [SECRET, SECRET]}
                audit(request, "user_password_set", user.get_username(), changes=changes)
        return response


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, OwnPermissionsOnly):
    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """True unless the group is a role of the platform, which `migrate` keeps as it is."""
        return super().has_change_permission(request, obj) and not self._is_kept(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not self._is_kept(request, obj)

    def _is_kept(self, request: HttpRequest, obj: Any) -> bool:
        if obj is None:
            return False
        is_role = Role.objects.filter(group=obj).exists()
        return is_role or _is_lacking(request, obj.permissions.all())
