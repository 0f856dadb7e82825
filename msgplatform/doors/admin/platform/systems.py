"""Business systems and their API keys. Nobody can give a key permissions that they do not have."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _, ngettext
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminSelect2MultipleWidget

from msgplatform import person_limits
from msgplatform.core import flows, personal
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.admin.base import next_page
from msgplatform.doors.admin.pages import SecretPageAdmin
from msgplatform.doors.admin.resource_admin import ResourceAdmin, ResourceForm
from msgplatform.doors.api.access import keys
from msgplatform.doors.api.management.systems import Key, System
from msgplatform.models import ApiKey, Biz
from msgplatform.setup.platform_file import kinds

# Scope → the console's permissions that allow the same.
_PLATFORM_PERMISSIONS = {
    "manage:systems": ("msgplatform.add_biz", "msgplatform.change_biz"),
    "manage:keys": ("msgplatform.add_apikey", "msgplatform.change_apikey"),
    "manage:alerts": ("msgplatform.view_alert", "msgplatform.change_alert", personal.PERMISSION),
    "manage:alert-channels": (
        "msgplatform.add_alertchannel", "msgplatform.change_alertchannel",
        "msgplatform.delete_alertchannel", "msgplatform.add_alertrule",
        "msgplatform.change_alertrule", "msgplatform.delete_alertrule",
    ),
    "manage:audit": ("msgplatform.view_auditlog", personal.PERMISSION),
    "manage:failures": ("msgplatform.change_alert", "msgplatform.add_bulkjob",
                        personal.PERMISSION),
    "manage:platform": (),  # the permissions of all kinds, see below
    "manage:person-data": ("msgplatform.find_person", "msgplatform.erase_person",
                           personal.PERMISSION),
    "manage:people": ("auth.add_user", "auth.change_user", "auth.view_group"),
    "manage:jobs": ("msgplatform.add_bulkjob", "msgplatform.change_bulkjob",
                    personal.PERMISSION),
    "manage:statistics": ("msgplatform.view_minutecounter",),
}  # fmt: skip


def scope_permissions(scope: str) -> set[str]:
    """The console's permissions that allow the same as the scope."""
    if scope not in _PLATFORM_PERMISSIONS:
        return {
            name
            for flow in flows.all()
            if scope in flow.scopes or scope in flow.management_scopes
            # Also the permission for personal data: the API masks nothing.
            for name in flow.scope_permissions.get(scope) or (flow.permission, personal.PERMISSION)
        }
    names = {*_PLATFORM_PERMISSIONS[scope]}
    if scope == "manage:keys":  # such a key makes keys with any scope of a business system
        names.update(name for other in keys.scopes() for name in scope_permissions(other))
    if scope == "manage:platform":
        names.update(name for kind in kinds.kinds() for name in scope_permissions(kind.scope))
    if scope in ("manage:jobs", "manage:failures", "manage:statistics"):  # for every flow
        names.update(flow.permission for flow in flows.all())
    if scope in ("manage:jobs", "manage:failures"):
        names.update(flow.bulk_permission or flow.resend_permission for flow in flows.all())
    return names - {""}


def can_give(user: Any, scope: str) -> bool:
    """True if the person has every permission that the scope stands for. Only a superuser has all
    permissions of the scopes that make people of any group and that erase a person's data."""
    if scope in keys.SUPERUSER_SCOPES and not user.is_superuser:
        return False
    return bool(user.has_perms(scope_permissions(scope)))


@admin.register(Biz)
class BizAdmin(ResourceAdmin):
    resource = System
    limited_views = frozenset({"changelist_view", "change_view"})
    limited_may_change = True
    limited_readonly = ["name"]  # limits of keys refer to the name
    list_display = [
        "name", "title", "enabled", "validates_events", "encrypts_payloads", "created_at",
    ]  # fmt: skip
    list_filter = ["enabled"]
    search_fields = ["name", "title"]

    def audit_action(self, form: Any, change: bool) -> str:
        if change and "enabled" in form.changed_data:
            return "system_enabled" if form.instance.enabled else "system_disabled"
        return super().audit_action(form, change)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change or "name" not in form.changed_data:
            return
        # Limits of keys go along with the system, in the transaction that renames it: they must not
        # pass to another one that gets the old name.
        old_name, name = form.initial["name"], obj.name
        for key in ApiKey.objects.select_for_update().filter(biz=None):
            if old_name in (before := key.systems or []):
                key.systems = sorted({*before, name} - {old_name})
                key.save(update_fields=["systems"])
                changes = {"systems": [before, key.systems]}
                audit(request, "api_key_changed", Key.title(key), changes=changes)
        if any(old_name in names for names in getattr(settings, "OIDC_SYSTEMS", {}).values()):
            text = _("OIDC_SYSTEMS names the system %(old)s: write %(new)s there.")
            messages.warning(request, text % {"old": old_name, "new": name})


class ScopesInput(UnfoldAdminCheckboxSelectMultipleWidget):  # type: ignore[misc]  # no types
    """Two groups of scopes: those of keys with a system and those of keys without one. A script
    shows the group that fits the chosen system, and ticks the scopes of a flow at a click."""

    template_name = "admin/scopes.html"

    class Media:
        js = [Script("console/scopes.js", defer=True)]

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, value, attrs)
        scope_names = {scope for _title, group in self.choices for scope, _text in group}
        context["presets"] = [
            (flow.title, " ".join(scopes))
            for flow in flows.all()
            if (scopes := [name for name in flow.scopes if name.endswith((":write", ":read"))])
            and scope_names.issuperset(scopes)
        ]
        return context


class ApiKeyForm(ResourceForm):
    user: Any = None  # the person at the form; the admin sets it
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"), widget=ScopesInput, help_text=_("What this key may do.")
    )
    systems = forms.MultipleChoiceField(
        label=_("Limited to"),
        widget=UnfoldAdminSelect2MultipleWidget,
        required=False,
        help_text=_(
            "For a management key: it sees and changes only what belongs to these business "
            "systems. Nothing chosen: no limit."
        ),
    )

    class Meta:
        model = ApiKey
        fields = ["biz", "name", "scopes", "systems", "expires_at"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scopes_field = self.fields.get("scopes")
        if isinstance(scopes_field, forms.MultipleChoiceField):
            stored_scopes = self.instance.scopes if self.instance.pk else ()
            groups = {
                gettext("For a business system"): keys.scopes(),
                gettext("For management, without a system"): keys.management_scopes(),
            }
            if self.instance.pk:  # its system is fixed
                of_system, of_management = groups
                del groups[of_management if self.instance.biz_id else of_system]
            scopes_field.choices = [
                (title, [
                    (name, f"{name}: {gettext(text)}")
                    for name, text in texts.items()
                    if name in stored_scopes or can_give(self.user, name)
                ])
                for title, texts in groups.items()
            ]  # fmt: skip
        systems_field = self.fields.get("systems")
        if isinstance(systems_field, forms.MultipleChoiceField):
            # Include deleted systems: without them a limit could silently become none.
            names = {*Biz.objects.values_list("name", flat=True), *(self.instance.systems or ())}
            systems_field.choices = [(name, name) for name in sorted(names)]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        # Only people who can give the key's scopes may widen its limit.
        stored_names, names = set(self.instance.systems or ()), values.get("systems", [])
        is_wider = bool(stored_names) and (not names or not stored_names.issuperset(names))
        if is_wider and not all(can_give(self.user, scope) for scope in self.instance.scopes):
            words = gettext("The key has scopes that you cannot give: only narrow its limit.")
            self.add_error("systems" if "systems" in self.fields else None, words)
        return values


@admin.register(ApiKey)
class ApiKeyAdmin(SecretPageAdmin, ResourceAdmin):
    resource = Key
    may_delete = True
    limited_views = frozenset({"changelist_view", "change_view", "add_view"})
    limited_may_change = True
    form = ApiKeyForm
    list_display = [
        "name", "biz", "limited_to", "prefix", "scope_names", "last_used_at", "expires_at",
        "revoked_at",
    ]  # fmt: skip
    list_filter = ["biz", "revoked_at"]
    list_select_related = ["biz"]
    search_fields = ["name", "prefix"]
    readonly_fields = ["prefix", "last_used_at", "revoked_at"]
    actions = ["revoke"]

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.user = request.user  # the class belongs to this request
        if person_limits.is_limited(request):
            form.base_fields.pop("systems", None)  # keys without a system: they cannot make these
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        # A new key has no prefix and no history yet.
        return fields if obj else []

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        # `keys.create` makes the row. `response_add` shows the plain text, which is stored nowhere.
        limit = obj.systems or ()
        row, obj.plain = keys.create(obj.biz, obj.name, obj.scopes, obj.expires_at, limit)
        obj.pk, obj.prefix = row.pk, row.prefix

    @admin.display(description=_("scopes"))
    def scope_names(self, obj: ApiKey) -> str:
        return ", ".join(obj.scopes)

    @admin.display(description=_("limited to"), empty_value="")
    def limited_to(self, obj: ApiKey) -> str:
        return ", ".join(obj.systems or ())

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self.show_secret(
            request,
            gettext("API key of %(system)s") % {"system": obj.biz}
            if obj.biz
            else gettext("Management key"),
            gettext("The key is shown this once; copy it now:"),
            obj.plain,
            next_page(request) or reverse("admin:msgplatform_apikey_changelist"),
            f"MSGP_URL={settings.PUBLIC_URL} MSGP_KEY={{secret}} msgp whoami",
        )

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
