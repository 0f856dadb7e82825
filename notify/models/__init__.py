"""Notify's tables; names are the original's."""

from notify.models.cold import ColdAttempt, ColdBizMsg, ColdReceiveMsg
from notify.models.event_types import EventType
from notify.models.messages import (
    Attempt,
    BizMsg,
    IdempotencyKey,
    ReceiveMsg,
    RestoredMsg,
    first_due,
    with_deliveries,
)
from notify.models.subscriptions import DEFAULT_SCHEDULE, BizReceive, Receive, default_schedule

__all__ = [
    "DEFAULT_SCHEDULE", "Attempt", "BizMsg", "BizReceive", "ColdAttempt", "ColdBizMsg",
    "ColdReceiveMsg", "EventType", "IdempotencyKey", "Receive", "ReceiveMsg", "RestoredMsg",
    "default_schedule", "first_due", "with_deliveries",
]  # fmt: skip
