"""SMS, as the platform sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from gateway.actions import one_message, resend
from gateway.connections import SMS, sms_redis
from gateway.messages import find as search
from gateway.messages import texts, timeline
from gateway.models import SmsGateway
from gateway.monitor import conditions, failures, first_steps, metrics, runbooks
from gateway.monitor.activity import ACTIVITY
from gateway.pump.retention import ARCHIVE
from msgplatform.core import flows
from msgplatform.core.alerts import Condition
from msgplatform.core.archive import retention
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import UNAVAILABLE, InvalidInput
from msgplatform.core.servers.private_server import free_port

# Serves all gateways, except those with a process of their own (`own_processes`).
_SENDER = flows.Daemon("run_sms_sender", priority=580, help="sends to the gateways")


class SmsFlow(flows.Flow):
    name = "sms"
    title = gettext_lazy("SMS")
    # The one with the highest priority stops first: what is in hand drains towards the archive.
    daemons = (
        flows.Daemon("run_data_pump", priority=550, help="moves what is finished to the archive"),
        flows.Daemon("run_report_forwarder", priority=560, help="publishes Reports and MOs"),
        flows.Daemon("run_sms_receiver", priority=570, help="takes Reports and MOs"),
        _SENDER,
    )
    urls = "gateway.urls"
    root_urls = "gateway.api.xmlrpc.urls"
    single_intakes = ("gateway.api.views.SEND",)
    permission = "gateway.view_sgipmt"
    operate = ("gateway.change_sgipmt",)
    again_permission = "gateway.change_sgipmt"
    scopes = {
        "sms:write": gettext_noop("send short messages"),
        "sms:read": gettext_noop("read short messages and what became of them"),
    }
    scope_permissions = {"sms:write": ("gateway.add_sgipmt",)}
    search_fields = search.FIELDS
    texts = gettext_lazy("messages in flight, numbers and texts")
    bulk_actions = {"resend": resend.ACTION}

    redis = (SMS,)
    icons = {
        "SmsGateway": "cell_tower",
        "SmsAccount": "badge",
        "SgipMt": "sms",
        "SgipMo": "call_received",
        "SgipReport": "task_alt",
        "SgipUserRpt": "contact_phone",
    }
    activity = ACTIVITY
    runbooks = runbooks.RUNBOOKS
    failures_note = gettext_lazy(
        "A Report that calls a message undeliverable is an answer, and no failure:"
    )
    watched_alerts = conditions.KINDS
    environment_prefix = "SMS_"
    declared_metrics = (*metrics.METRICS, retention.metric(ARCHIVE))

    def own_processes(self) -> list[flows.Daemon]:
        wanted = SmsGateway.objects.filter(own_process=True, enabled=True).order_by("id")
        return [
            replace(_SENDER, arguments=(f"--gateway={name}",))
            for name in wanted.values_list("name", flat=True)
        ]

    def status(self) -> flows.Status:
        try:
            return metrics.status()
        except UNAVAILABLE as error:
            # The overview shows the other flows all the same.
            return flows.Status(0, None, problem=str(error)[:200])

    def waits(self) -> Iterable[flows.Wait]:
        return metrics.waits()

    def failures(self) -> Sequence[flows.Failure]:
        return failures.failures()

    def conditions(self) -> Iterable[Condition]:
        return conditions.conditions()

    def search(self, query: str, limit: int, personal: bool = True) -> list[flows.Hit]:
        return search.search(query, limit, personal)

    def search_text(
        self, query: str, since: datetime, cursor: str, seconds: float
    ) -> flows.TextFound:
        return texts.search_text(query, since, cursor, seconds)

    def page(self, id: str, after: str = "") -> flows.Page | None:
        return timeline.page(id)

    def send_again(self, id: str, recipient: str, by: str) -> flows.SentAgain:
        return one_message.send_again(id, recipient)

    def find(self, filter: Mapping[str, str], cursor: str, limit: int) -> flows.Found:
        return search.find(filter, cursor, limit)

    def notice(self) -> str:
        try:
            sms_redis().ping()
        except RedisError:
            return _("The SMS Redis does not answer.")
        return ""

    def bulk_count(self, action: str, filter: Mapping[str, Any]) -> flows.Counted:
        _known(action)
        return resend.count(filter)

    def bulk_preview(self, action: str, filter: Mapping[str, Any]) -> flows.Preview:
        _known(action)
        return resend.shown_before(filter)

    def bulk_step(
        self,
        action: str,
        filter: Mapping[str, Any],
        cursor: str,
        limit: int,
        note: flows.Note = flows.unnoted,
    ) -> flows.Step:
        _known(action)
        return resend.step(filter, cursor, limit, note)

    def bulk_outcome(self, action: str, ids: Sequence[str]) -> dict[str, flows.Ending]:
        return resend.outcome(ids)

    def bulk_hits(self, action: str, ids: Sequence[str]) -> list[flows.Hit]:
        return resend.found(ids)

    def examine(self) -> Iterable[flows.Finding]:
        return conditions.examine()

    def metrics(self) -> Iterable[flows.Sample]:
        return [*metrics.samples(), *retention.samples(ARCHIVE)]

    def first_steps(self) -> Sequence[flows.FirstStep]:
        return first_steps.steps()

    def first_calls(self) -> Sequence[flows.FirstCall]:
        return [first_steps.CALL]

    def demo_environment(self) -> Mapping[str, str]:
        return {"SMS_RECEIVER_PORT": str(free_port())}

    def demo(self, run: flows.DemoRun) -> Mapping[str, Any]:
        from gateway.demo.run import run_demo  # it brings Notify's demo, which only this needs

        return run_demo(run)


def _known(action: str) -> None:
    if action != "resend":
        raise InvalidInput(_("there is no such bulk action"), "action")
