"""What is let go when it has been kept long enough: archived messages, and idempotency keys."""

from __future__ import annotations

from msgplatform.core.archive.description import Archive, Table
from notify.archive import ages
from notify.models import BizMsg, ColdAttempt, ColdBizMsg, ColdReceiveMsg, IdempotencyKey

_COPIES = Table(ColdReceiveMsg, (Table(ColdAttempt, of="copy_id"),), of="msg_id")
MESSAGES = Table(ColdBizMsg, (_COPIES,))

ARCHIVE = Archive("notify", (MESSAGES,), ages.keep_archived, hot=BizMsg)
KEYS = Archive("notify.keys", (Table(IdempotencyKey),), ages.keep_keys)
