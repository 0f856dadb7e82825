"""The messages that are still on their way, counted cheaply while programs run."""

from typing import Any

from django.db.models import CharField, Exists, OuterRef
from django.db.models.functions import Cast

from bench.soak.stage import SUBSCRIBERS
from crmsync.models import Lead, Record
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from notify.feed.models import EventQueue
from notify.models import BizMsg, ReceiveMsg

_DEAD = SUBSCRIBERS[-1]


def open_messages() -> int:
    """How many are open, without those for the dead subscriber, which wait for long."""
    status = ReceiveMsg.Status
    deliveries = ReceiveMsg.objects.filter(status__in=(status.PENDING, status.QUEUED))
    client: Any = sms_redis()
    has_record = Record.objects.filter(key=OuterRef("text_id"))
    leads = Lead.objects.annotate(text_id=Cast("id", CharField()))
    return (
        BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).count()
        + deliveries.exclude(biz_receive__receive__name=_DEAD).count()
        + sum(1 for _ in client.scan_iter(match=keys.MT_PATTERN, count=1000))
        + Record.objects.filter(state__in=Record.OPEN).count()
        + leads.filter(~Exists(has_record)).count()
        + EventQueue.objects.filter(status=EventQueue.Status.WAITING).count()
    )
