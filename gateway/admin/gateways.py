"""Gateways: the addresses and settings of the operator's SMGs, and the present state of each."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.forms import model_to_dict
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from gateway.admin.fields import PasswordField
from gateway.models import SmsGateway, validators
from gateway.monitor import metrics
from msgplatform.admin import PlainList, UndeletableAdmin, cells
from msgplatform.admin.fields import LinesField
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.durations import age

log = logging.get(__name__)
_PASSWORDS = ("login_password", "smg_login_password")


class GatewayForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    login_password = PasswordField(label=_("Our password"))
    smg_login_password = PasswordField(label=_("The SMG's password"))
    networks = LinesField(
        check=validators.network,
        label=_("Networks"),
        help_text=_(
            "From which the SMG connects to us, one a line: 203.0.113.7 or 203.0.113.0/28. Empty: "
            "from its host only. Connections from anywhere else are closed at once."
        ),
    )
    prefixes = LinesField(
        check=validators.prefix,
        label=_("Number prefixes"),
        help_text=_("Recipients that go this way, one a line: 130 or 86130. Empty: everybody."),
    )

    class Meta:
        model = SmsGateway
        fields = [
            "name", "enabled", "host", "port", "login_name", "login_password", "smg_login_name",
            "smg_login_password", "networks", "operator", "corp_id", "area_code", "node_id",
            "connections", "window", "speed_limit", "prefixes", "priority", "ascii_limit",
            "users_per_submit", "response_timeout", "resends", "idle_timeout", "report_hours",
            "own_process",
        ]  # fmt: skip
        help_texts = {
            "enabled": _(
                "Off: nothing is sent over it, and our connections to the SMG are closed. The SMG "
                "may still connect to us, so that the Reports and MOs on their way arrive."
            ),
            "name": _("A short word for lists and statistics: letters, digits and hyphens"),
            "port": _("8801 is SGIP's own"),
            "login_name": _("With which we bind to the SMG; at most 16 ASCII characters"),
            "operator": _(
                "A short word. Gateways of the same operator may report on each other's messages; "
                "empty: this one reports on its own only"
            ),
            "corp_id": _("Five digits, from the operator's contract"),
            "area_code": _("Of the operator's city, with its leading 0: 010, 0755"),
            "users_per_submit": _(
                "Recipients of one text in one packet; at most 90 fit into the 2 KB of the "
                "specification"
            ),
            "response_timeout": _(
                "Seconds, 5 to 600; without a response the same bytes are sent again"
            ),
            "idle_timeout": _("Seconds without traffic after which the SMG closes a connection"),
        }
        error_messages = {
            name: {"invalid": _("Use letters, digits, hyphens and underscores, no spaces.")}
            for name in ("name", "operator")
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in _PASSWORDS:
            field = self.fields.get(name)
            if isinstance(field, PasswordField):
                field.keep(model_to_dict(self.instance, [name])[name])
                self.initial.pop(name, None)  # the password must not reach the page

    def clean(self) -> dict[str, Any]:
        form_values = super().clean() or {}
        is_elsewhere = self.instance.pk and {"host", "port"}.intersection(self.changed_data)
        is_kept = "login_password" not in self.changed_data and form_values.get("login_password")
        if is_elsewhere and is_kept:
            words = gettext("The stored password was entered for %s: enter it again.")
            address = f"{self.initial['host']}:{self.initial['port']}"
            self.add_error("login_password", words % address)
        return form_values


class GatewayList(PlainList):
    """Reads the state of the gateways, for all rows of a page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        try:
            now = metrics.read()
        except RedisError as error:
            log.warning("gauges_unreadable", why=str(error)[:200])
            messages.warning(
                request, gettext("The SMS Redis does not answer: links and queues are unknown.")
            )
            now = None
        queues = {queue.gateway.pk: queue for queue in now.queues} if now else {}
        for row in self.result_list:
            row.queue = queues.get(row.pk)
            row.links = [s for s in now.links if s.gateway == row.pk] if now else None


@admin.register(SmsGateway)
class SmsGatewayAdmin(UndeletableAdmin):
    audit_name = "sms_gateway"
    form = GatewayForm
    list_display = [
        "name", "address", "state", "up", "pending", "oldest", "speed", "priority",
    ]  # fmt: skip
    list_filter = ["enabled"]
    list_before_template = "admin/gateway/gateways_bar.html"
    search_fields = ["name", "host"]
    search_help_text = _("Name or host")
    readonly_fields = ["created_at"]
    fieldsets = [
        (None, {"fields": ["name", "enabled", "host", "port"]}),
        (
            _("Login"),
            {"fields": ["login_name", "login_password", "smg_login_name", "smg_login_password",
                        "networks", "operator", "corp_id", "area_code", "node_id"]},
        ),
        (_("Which messages go this way"), {"fields": ["prefixes", "priority"]}),
        (
            _("Connections, speed and patience"),
            {"fields": ["connections", "window", "speed_limit", "users_per_submit", "ascii_limit",
                        "response_timeout", "resends", "idle_timeout", "report_hours",
                        "own_process"]},
        ),
    ]  # fmt: skip

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[PlainList]:
        return GatewayList

    @admin.display(description=_("address"))
    def address(self, row: SmsGateway) -> str:
        return f"{row.host}:{row.port}"

    @admin.display(description=_("state"))
    def state(self, row: SmsGateway) -> str:
        return cells.enabled(row.enabled)

    @admin.display(description=_("links"))
    def up(self, row: Any) -> SafeString:
        """Connections from us to the SMG and from the SMG to us; below them the problems."""
        if row.links is None:
            return cells.unknown()
        problems = list(dict.fromkeys(link.problem for link in row.links if link.problem))
        working = [link.kind for link in row.links if not link.problem]
        outgoing, incoming = working.count("submit"), working.count("report")
        if not outgoing and row.enabled:
            why = problems or [gettext("no sender reports a connection")]
            return cells.mark(gettext("down"), "bad", below="; ".join(why))
        tone = "warn" if problems else "good" if outgoing else "plain"
        text = gettext("%(ours)d out, %(theirs)d in") % {
            "ours": outgoing,
            "theirs": incoming,
        }
        title = ", ".join((
            ngettext("%d connection to the SMG", "%d connections to the SMG", outgoing) % outgoing,
            ngettext("%d from the SMG", "%d from the SMG", incoming) % incoming,
        ))  # fmt: skip
        return cells.mark(text, tone, title, below="; ".join(problems))

    @admin.display(description=_("waiting"))
    def pending(self, row: Any) -> str:
        if row.queue is None:
            return cells.unknown()
        return str(row.queue.pending + row.queue.claimed)

    @admin.display(description=_("oldest"))
    def oldest(self, row: Any) -> str:
        seconds = row.queue.oldest_seconds if row.queue else None
        return cells.NOTHING if seconds is None else age(seconds)

    @admin.display(description=_("speed limit"), ordering="speed_limit")
    def speed(self, row: SmsGateway) -> str:
        return cells.per_second(row.speed_limit)
