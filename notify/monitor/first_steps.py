"""The first steps of a newcomer."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import FirstCall, FirstStep
from notify.models import BizMsg, BizReceive, ColdBizMsg, ColdReceiveMsg, Receive, ReceiveMsg

CALL = FirstCall(
    "/api/v1/messages",
    {
        "event_type": "order.paid",
        "payload": {"order": 7},
        "idempotency_key": "order-7-paid",
    },
    "events:write",
)


def steps() -> list[FirstStep]:
    deliveries = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.DELIVERED)
    return [
        FirstStep(
            _("A consumer"),
            _("The address that gets the messages. Its signing secret is shown once."),
            Receive.objects.exists(),
            "admin:notify_receive_add",
            ("notify.add_receive",),
        ),
        FirstStep(
            _("A subscription"),
            _("It joins a business system and a consumer: which events the consumer gets."),
            BizReceive.objects.exists(),
            "admin:notify_bizreceive_add",
            ("notify.add_bizreceive",),
        ),
        FirstStep(
            _("A message is accepted"),
            _("Publish one with the command below, or from your own program."),
            BizMsg.objects.exists() or ColdBizMsg.objects.exists(),
        ),
        FirstStep(
            _("A message is delivered"),
            _("The consumer answered 2xx. Search for the message's id to see every attempt."),
            deliveries.exists() or ColdReceiveMsg.objects.exists(),
            "console:search",
        ),
    ]
