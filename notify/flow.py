"""The declaration of Notify for the platform."""

from django.utils.translation import gettext_lazy, gettext_noop
from msgspec.structs import replace

from msgplatform.core import sandbox
from msgplatform.core.archive import kept
from msgplatform.core.flows.contract import Flow, Link
from msgplatform.core.flows.health import Health
from msgplatform.core.flows.programs import Daemon
from msgplatform.core.flows.setup import Setup
from msgplatform.core.intake.moved_keys import TableKeys
from msgplatform.core.personal import PERMISSION as PERSONAL
from notify import orders
from notify.actions.actions import ACTIONS
from notify.archive.retention import ARCHIVE, kept_data
from notify.messages.index import MESSAGES
from notify.models import BizReceive, IdempotencyKey, Receive
from notify.monitor import conditions, first_steps, metrics, subjects
from notify.monitor.activity import ACTIVITY
from notify.person_data.stores import stores

# A request in flight is waited for: a request that is cut off would be delivered twice.
_SENDER = Daemon("run_sender", priority=520, stop_seconds=75, help="delivers")


def _own_senders() -> list[Daemon]:
    rows = BizReceive.objects.filter(own_process=True)
    rows = rows.exclude(status=BizReceive.Status.DISCARDED).order_by("id")
    rows = rows.exclude(receive__delivery=Receive.Delivery.LISTEN)
    return [
        replace(_SENDER, arguments=(f"--subscription={pk}",))
        for pk in rows.values_list("id", flat=True)
    ]


FLOW = Flow(
    name="notify",
    title=gettext_lazy("Notify"),
    # The highest priority stops first: messages in flight drain towards the marker.
    daemons=(
        Daemon("run_marker", priority=510, help="writes back what became of each delivery"),
        _SENDER,
        Daemon("run_maker", priority=530, help="splits and queues"),
        Daemon("run_archiver", priority=540, help="moves final messages to the archive"),
    ),
    own_processes=_own_senders,
    urls="notify.urls",
    root_urls="notify.root_urls",
    single_intakes=("notify.api.views.PUBLISH",),
    permission="notify.view_bizmsg",
    operator_permissions=("notify.change_receivemsg", "notify.operate_bizreceive"),
    resend_permission="notify.change_receivemsg",
    scopes={
        "events:write": gettext_noop("publish events"),
        "events:read": gettext_noop("read events and what became of them"),
        "events:listen": gettext_noop(
            "fetch the deliveries of a consumer for development, as msgp listen does"
        ),
    },
    management_scopes={
        "manage:consumers": gettext_noop("set up consumers: where messages go"),
        "manage:subscriptions": gettext_noop("set up subscriptions: who gets what"),
        "manage:held": gettext_noop("release or skip what is held for paused subscriptions"),
        "manage:tests": gettext_noop("send tests: an event, a text message, a lead; test CRMs"),
        "manage:event-types": gettext_noop("describe event types in the catalogue"),
        "manage:sandbox": gettext_noop("read what sandboxes got, and set how they answer"),
    },
    scope_permissions={
        "events:write": ("notify.add_bizmsg",),
        # The payloads come in clear, and with the headers of the consumer.
        "events:listen": ("notify.view_bizmsg", PERSONAL, "notify.change_receive"),
        "manage:consumers": ("notify.add_receive", "notify.change_receive",
                             "notify.delete_receive"),
        "manage:subscriptions": ("notify.add_bizreceive", "notify.change_bizreceive",
                                 "notify.delete_bizreceive"),
        "manage:held": ("notify.view_bizreceive", "notify.operate_bizreceive"),
        "manage:tests": ("notify.change_bizreceive",),
        "manage:sandbox": ("notify.view_bizmsg", "notify.operate_bizreceive", PERSONAL),
        "manage:event-types": ("notify.add_eventtype", "notify.change_eventtype",
                               "notify.delete_eventtype"),
    },
    messages=MESSAGES,
    key_stores=(TableKeys(IdempotencyKey),),
    person_stores=stores,
    kept=kept_data,
    actions=ACTIONS,
    health=Health(
        read_status=metrics.read_status,
        oldest_waits=metrics.waits,
        conditions=conditions.conditions,
        condition_kinds=conditions.KINDS,
        failures=subjects.failures,
        has_failures_of_systems=True,
        examine=conditions.examine,
        metrics=lambda: [*metrics.samples(), *kept.samples(ARCHIVE)],
        declared_metrics=(*metrics.METRICS, kept.metric(ARCHIVE)),
        activity=ACTIVITY,
        runbooks=conditions.RUNBOOKS,
        runbook_texts=conditions.RUNBOOK_TEXTS,
    ),
    setup=Setup(
        first_steps=first_steps.steps,
        first_calls=lambda: [first_steps.CALL],
        snippets=first_steps.snippets,
    ),
    queues=(orders.MARKER_QUEUE,),
    # A result on the marker's queue is the only copy of an answer, so results are never dropped.
    only_copies=frozenset({orders.MARKER_QUEUE}),
    queue_pattern=orders.QUEUE_PATTERN,
    links=(
        Link(gettext_lazy("Publish an event"), "send", "admin:notify_publish",
                   ("notify.add_bizmsg", "notify.view_bizmsg")),
        *([Link(gettext_lazy("Sandbox"), "science", "admin:notify_sandboxes",
                      ("notify.view_bizreceive",))] if sandbox.is_on() else []),
        Link(gettext_lazy("Event reference"), "auto_stories", "admin:event_reference",
                   ("notify.view_eventtype",), is_reference=True),
    ),
    icons={"Receive": "outbound", "BizReceive": "hub", "EventType": "menu_book", "BizMsg": "mail"},
)  # fmt: skip
