"""Gateways: where the operator's SMGs are, and how each does right now."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway import gauges
from gateway.admin import cells
from gateway.admin.fields import LinesField, PasswordField
from gateway.models import SmsGateway
from msgplatform.admin import UndeletableAdmin, audit
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.templatetags.humanize_age import age

log = logging.get(__name__)
_PASSWORDS = ("login_password", "smg_login_password")


class GatewayForm(forms.ModelForm):
    login_password = PasswordField(
        label=_("Our password"), help_text=_("Never shown; leave it empty to keep it.")
    )
    smg_login_password = PasswordField(
        label=_("The SMG's password"), help_text=_("Never shown; leave it empty to keep it.")
    )
    prefixes = LinesField(
        r"[0-9]{1,21}",
        _("digits only"),
        label=_("Number prefixes"),
        help_text=_("Recipients that go this way, one a line: 130 or 86130. Empty: everybody."),
    )

    class Meta:
        model = SmsGateway
        fields = [
            "name", "enabled", "host", "port", "login_name", "login_password", "smg_login_name",
            "smg_login_password", "corp_id", "area_code", "node_id", "connections", "window",
            "speed_limit", "prefixes", "priority", "ascii_limit", "users_per_submit",
            "response_timeout", "resends", "idle_timeout", "report_hours",
        ]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in _PASSWORDS:
            field = self.fields.get(name)
            if isinstance(field, PasswordField):
                field.stored = getattr(self.instance, name)
                self.initial.pop(name, None)


class GatewayList(ChangeList):
    """Reads how the gateways do, for all that are shown at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        try:
            now = gauges.read()
        except RedisError as error:
            log.warning("gauges_unreadable", why=str(error)[:200])
            now = None
        queues = {queue.gateway.pk: queue for queue in now.queues} if now else {}
        for row in self.result_list:
            row.queue = queues.get(row.pk)
            row.links = [s for s in now.links if s.gateway == row.pk] if now else None


@admin.register(SmsGateway)
class SmsGatewayAdmin(UndeletableAdmin):
    form = GatewayForm
    list_display = [
        "name", "address", "state", "up", "pending", "oldest", "speed", "priority",
    ]  # fmt: skip
    list_filter = ["enabled"]
    search_fields = ["name", "host"]
    readonly_fields = ["created_at"]
    fieldsets = [
        (None, {"fields": ["name", "enabled", "host", "port"]}),
        (
            _("Login"),
            {"fields": ["login_name", "login_password", "smg_login_name", "smg_login_password",
                        "corp_id", "area_code", "node_id"]},
        ),
        (_("Which messages"), {"fields": ["prefixes", "priority"]}),
        (
            _("How"),
            {"fields": ["connections", "window", "speed_limit", "users_per_submit", "ascii_limit",
                        "response_timeout", "resends", "idle_timeout", "report_hours"]},
        ),
    ]  # fmt: skip

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return GatewayList

    def save_model(
        self, request: HttpRequest, obj: SmsGateway, form: ModelForm, change: bool
    ) -> None:
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            action = "sms_gateway_changed" if change else "sms_gateway_created"
            audit(request, action, obj.name, fields=sorted(form.changed_data))

    @admin.display(description=_("address"))
    def address(self, row: SmsGateway) -> str:
        return f"{row.host}:{row.port}"

    @admin.display(description=_("state"))
    def state(self, row: SmsGateway) -> str:
        if row.enabled:
            return cells.mark(gettext("enabled"), "good")
        return cells.mark(gettext("switched off"), "plain")

    @admin.display(description=_("links"))
    def up(self, row: Any) -> str:
        """Of ours to the SMG and of the SMG's to us; what is wrong is in the title."""
        if row.links is None:
            return gettext("unknown")
        working = [link for link in row.links if not link.problem]
        problems = "; ".join(link.problem for link in row.links if link.problem)
        ours = sum(link.kind == "submit" for link in working)
        if not ours and row.enabled:
            return cells.mark(problems[:60] or gettext("down"), "bad", problems)
        text = gettext("%(ours)d out, %(theirs)d in") % {
            "ours": ours, "theirs": sum(link.kind == "report" for link in working),
        }  # fmt: skip
        return cells.mark(text, "warn" if problems else "good" if ours else "plain", problems)

    @admin.display(description=_("waiting"))
    def pending(self, row: Any) -> str:
        if row.queue is None:
            return gettext("unknown")
        return str(row.queue.pending + row.queue.claimed)

    @admin.display(description=_("oldest"))
    def oldest(self, row: Any) -> str:
        seconds = row.queue.oldest_seconds if row.queue else None
        return cells.NOTHING if seconds is None else age(seconds)

    @admin.display(description=_("speed limit"), ordering="speed_limit")
    def speed(self, row: SmsGateway) -> str:
        return gettext("%g/s") % row.speed_limit if row.speed_limit else cells.NOTHING
