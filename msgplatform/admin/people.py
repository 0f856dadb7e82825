"""People and their groups. Nobody gives away more than they have themselves."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from msgplatform.admin.auditing import SECRET, audit
from msgplatform.admin.confirmation import Confirmed, confirmed
from msgplatform.models import Role

admin.site.unregister([User, Group])
# Their rows are shown with the person, not as tables; these modules register them.
for _module in ("account", "mfa", "socialaccount", "usersessions"):
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
        if field is None or user.is_superuser:
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


@admin.register(User)
class UserAdmin(DjangoUserAdmin, OwnPermissionsOnly):  # type: ignore[misc, type-arg]  # has no types
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    readonly_fields = ["last_login", "date_joined"]

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
