"""People and their groups. Nobody can give permissions that they do not have."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urljoin

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin, UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy as _
from unfold.forms import AdminPasswordChangeForm, UserChangeForm
from unfold.widgets import (
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminSelect2MultipleWidget,
    UnfoldBooleanSwitchWidget,
)

from msgplatform import person_limits
from msgplatform.core import invitations
from msgplatform.doors.admin.auditing import SECRET, audit
from msgplatform.doors.admin.base import AdminPage
from msgplatform.doors.admin.confirmation import Confirmed, confirmed
from msgplatform.doors.admin.pages import SecretPageAdmin
from msgplatform.models import Biz, Role

admin.site.unregister([User, Group])
# Modules of django-allauth that register pages. Their rows are shown with the person instead, and
# permissions for them have no effect.
_WITHOUT_PAGES = ("account", "mfa", "socialaccount", "usersessions")
for _module in _WITHOUT_PAGES:
    import_module(f"allauth.{_module}.admin")
    for _model in apps.get_app_config(_module).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)
_ROLE_TEXTS = {  # defined in `roles.py`, which flows may not import
    "viewer": _("looks; numbers, texts and payloads are masked"),
    "operator": _("also sends messages again, pauses and acknowledges; changes no setting"),
    "administrator": _("may do everything, with people and keys too"),
}


def _permissions_of(user: Any) -> QuerySet[Permission]:
    """The permissions of a person. An inactive person keeps them for later."""
    if user.is_superuser:
        return Permission.objects.all()
    return Permission.objects.filter(Q(user=user) | Q(group__user=user)).distinct()


def _is_lacking(request: HttpRequest, permissions: QuerySet[Permission]) -> bool:
    """True if the person who asks lacks one of these permissions."""
    user: Any = request.user
    if user.is_superuser:
        return False
    return permissions.exclude(pk__in=_permissions_of(user).values("pk")).exists()


def _groups_to_give(user: Any) -> QuerySet[Group]:
    """The groups of which this person has every permission."""
    rows = Group.objects.order_by(F("role__group").asc(nulls_last=True), "name").select_related(
        "role"
    )
    if user.is_superuser:
        return rows
    other_permissions = Permission.objects.exclude(pk__in=_permissions_of(user).values("pk"))
    return rows.exclude(pk__in=Group.objects.filter(permissions__in=other_permissions).values("pk"))


class OwnPermissionsOnly(Confirmed):
    """Offers only permissions that the person has, and groups without other permissions."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and not self.is_beyond(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not self.is_beyond(request, obj)

    def is_beyond(self, request: HttpRequest, obj: Any) -> bool:
        """True if the person may not change or delete this row."""
        raise NotImplementedError

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_manytomany(db_field, request, **kwargs)
        user: Any = request.user
        if db_field.related_model is Permission:
            field.queryset = field.queryset.exclude(content_type__app_label__in=_WITHOUT_PAGES)
        if user.is_superuser:
            return field
        if db_field.related_model is Group:
            field.queryset = _groups_to_give(user)
        elif db_field.related_model is Permission:
            field.queryset = field.queryset.filter(pk__in=_permissions_of(user).values("pk"))
        return field


class _RoleField(forms.ModelChoiceField):  # type: ignore[type-arg]  # generic for mypy only
    def label_from_instance(self, group: Any) -> str:
        """A group's name, with a sentence for a role that the platform ships."""
        role = getattr(group, "role", None)
        return f"{group.name}: {_ROLE_TEXTS[role.name]}" if role else group.name


class InvitationForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for mypy only
    """The invitation of a person, who chooses a password by a link."""

    giver: Any  # the person who invites
    role = _RoleField(
        label=_("Role"), queryset=Group.objects.none(), empty_label=None,
        widget=UnfoldAdminRadioSelectWidget,
    )  # fmt: skip
    systems = forms.MultipleChoiceField(
        label=_("Only these business systems"),
        required=False,
        widget=UnfoldAdminSelect2MultipleWidget,
        help_text=_("The person sees and changes only what belongs to these. Nothing chosen: all."),
    )

    class Meta:
        model = User
        fields = ["username", "email"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].queryset = _groups_to_give(self.giver)  # type: ignore[attr-defined]
        names = Biz.objects.order_by("name").values_list("name", flat=True)
        self.fields["systems"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.fields["email"].help_text = (
            gettext("The link is sent there, too.")
            if invitations.has_mail()
            else gettext("For your records: mail is not set up here (MAIL_URL).")
        )

    def clean_username(self) -> str:
        name: str = self.cleaned_data["username"]
        if namesake := User.objects.filter(username__iexact=name).first():
            raise forms.ValidationError(
                gettext("There is a person named %s already.") % namesake.get_username()
            )
        return name


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
        help_text=_("For the switch above. Nothing chosen: the person sees no system."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Biz.objects.order_by("name").values_list("name", flat=True)
        if "systems" in self.fields:  # people who may only look do not see it
            self.fields["systems"].choices = [(name, name) for name in names]
        self.initial |= self.further_values(self.instance)

    @staticmethod
    def further_values(row: User) -> Mapping[str, Any]:
        """The fields that are no columns, with their stored values."""
        limit = person_limits.limit_of(row)
        return {"is_limited": limit is not None, "systems": sorted(limit or ())}

    def clean(self) -> Any:
        values = super().clean() or self.cleaned_data
        if values.get("systems") and not values.get("is_limited"):
            text = gettext("Switch on “Limited to some business systems”, or choose no system.")
            self.add_error("systems", text)
        return values


@admin.register(User)
class UserAdmin(DjangoUserAdmin, OwnPermissionsOnly, SecretPageAdmin):  # type: ignore[type-arg]  # has no types
    """People. A new person is invited: a link, which works once, leads to the password."""

    form = LimitedUserForm
    add_form = InvitationForm
    add_form_template = None  # Django's text is about the next page
    add_fieldsets = ((None, {"fields": ["username", "email", "role", "systems"]}),)
    list_before_template = "admin/people_bar.html"
    change_password_form = AdminPasswordChangeForm
    change_form_outer_before_template = "admin/person_bar.html"
    readonly_fields = ["last_login", "date_joined"]
    list_display = [
        "username", "email", "first_name", "last_name", "is_staff", "limited_to",
    ]  # fmt: skip
    further_pages = [AdminPage("<int:pk>/invite/", "auth_user_invite", "invite_view", is_post=True)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.prefetch_related("limit__systems")

    @admin.display(description=_("limited to"), empty_value="")
    def limited_to(self, row: User) -> str:
        """The business systems of a limited person; a dash for none."""
        limit = getattr(row, "limit", None)
        if limit is None:
            return ""
        return ", ".join(system.name for system in limit.systems.all()) or "–"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The limit has a fieldset of its own, for people who may change it."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or not self.has_change_permission(request, obj):
            return fieldsets
        return [*fieldsets, (_("Limit"), {"fields": ["is_limited", "systems"]})]

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        if obj is None:
            form.giver = request.user
        return form

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {"title": _("Invite a person"), "show_save_and_continue": False,
                   "show_save_and_add_another": False}  # fmt: skip
        return super().add_view(request, form_url, {**context, **(extra_context or {})})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.is_staff = True
            obj.set_unusable_password()
        super().save_model(request, obj, form, change)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self._show_invitation(request, obj)

    @confirmed
    def invite_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take back the invitation of somebody who has not chosen a password yet, and make a new
        one unless the form says `revoke`."""
        user, is_revoked = self.row_for(request, pk), "revoke" in request.POST
        if not (is_revoked or settings.LOCAL_PASSWORDS):
            return self._show_invitation(request, user)  # which has no link then
        with transaction.atomic():
            # Locked: a password that the person chooses at this moment stays.
            user.refresh_from_db(from_queryset=User.objects.select_for_update())
            if is_open := invitations.is_open(user):
                invitations.revoke(user)
                action = "user_invitation_revoked" if is_revoked else "user_invited"
                audit(request, action, user.get_username())
        if not is_open:
            messages.warning(request, _("This person has a password, or is disabled."))
        elif is_revoked:
            messages.success(request, _("The links that were sent no longer work."))
        else:
            return self._show_invitation(request, user)
        return redirect("admin:auth_user_change", pk)

    def _show_invitation(self, request: HttpRequest, user: Any) -> HttpResponse:
        """The page with the link, which is also sent by mail where mail is set up."""
        page = reverse("admin:auth_user_change", args=[user.pk])
        if not settings.LOCAL_PASSWORDS:
            text = _("%s was saved, and signs in by the company's provider.") % user.get_username()
            messages.success(request, text)
            return redirect(page)
        link = urljoin(settings.PUBLIC_URL, invitations.link_path(user))
        if user.email and invitations.has_mail():
            if problem := invitations.send(user, link):
                messages.warning(request, _("The mail was not sent: %s") % problem)
            else:
                messages.success(request, _("The link was sent to %s, too.") % user.email)
        return self.show_secret(
            request,
            gettext("Invitation of %s") % user.get_username(),
            gettext(
                "Give this link to the person, and to nobody else: it leads to the password and "
                "the second factor, serves once, and ends after a day."
            ),
            link,
            page,
        )

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        values = form.cleaned_data
        if not change:
            form.instance.groups.set([values["role"]])
            if values["systems"]:
                person_limits.set_limit(form.instance, values["systems"])
        elif {"is_limited", "systems"}.intersection(form.changed_data):
            system_names = values["systems"] if values["is_limited"] else None
            person_limits.set_limit(form.instance, system_names)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        names = super().get_readonly_fields(request, obj)
        return names if request.user.is_superuser else [*names, "is_superuser"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and obj != request.user

    def is_beyond(self, request: HttpRequest, obj: Any) -> bool:
        """True if the other person has further permissions: a person who sets their password could
        log in as them."""
        user: Any = request.user
        if obj is None or user.is_superuser:
            return False
        return obj.is_superuser or _is_lacking(request, _permissions_of(obj))

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
    def is_beyond(self, request: HttpRequest, obj: Any) -> bool:
        """True if the group is a role of the platform, which `migrate` keeps as it is, or has
        permissions that the person lacks."""
        if obj is None:
            return False
        is_role = Role.objects.filter(group=obj).exists()
        return is_role or _is_lacking(request, obj.permissions.all())
