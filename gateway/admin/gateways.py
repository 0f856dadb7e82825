"""Gateways: the addresses and settings of the operator's SMGs, and the present state of each."""

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from gateway.models import SmsGateway
from gateway.monitor import metrics
from gateway.setup import Gateway
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.durations import age
from msgplatform.doors.admin import PasswordInput, PlainList, ResourceAdmin, cells

log = logging.get(__name__)
SLUG_ERRORS = {"invalid": _("Use letters, digits, hyphens and underscores, no spaces.")}
_PASSWORD = {
    "strip": False,
    "error_messages": {"required": _("Give a password.")},
    "widget": PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
}


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
class SmsGatewayAdmin(ResourceAdmin):
    resource = Gateway
    list_class = GatewayList
    field_options = {
        "name": {"error_messages": SLUG_ERRORS},
        "operator": {"error_messages": SLUG_ERRORS},
        "login_password": _PASSWORD,
        "smg_login_password": _PASSWORD,
    }
    list_display = [
        "name", "address", cells.state, "up", "pending", "oldest", "speed", "priority",
    ]  # fmt: skip
    list_filter = ["enabled"]
    list_before_template = "admin/gateway/gateways_bar.html"
    search_fields = ["name", "host"]
    search_help_text = _("Name or host")
    readonly_fields = ["created_at"]

    address = cells.column(_("address"), lambda row: f"{row.host}:{row.port}")

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

    speed = cells.column(
        _("speed limit"), lambda row: cells.per_second(row.speed_limit), "speed_limit"
    )
