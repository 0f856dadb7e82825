"""The times for which messages and idempotency keys are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive.description import DAY, Archive, Table
from notify.models import BizMsg, ColdAttempt, ColdBizMsg, ColdReceiveMsg, IdempotencyKey
from notify.subscriptions.limits import MAX_DELAY_SECONDS

if TYPE_CHECKING:
    from msgplatform.core.archive import kept

# A duplicate of a request may come as late as the last retry of a message that depends on it.
_KEY_MARGIN_SECONDS = MAX_DELAY_SECONDS + DAY


def keep() -> float:
    """Seconds until a message moves if its deliveries all succeeded or were skipped."""
    return float(settings.NOTIFY_KEEP_DAYS) * DAY


def keep_failed() -> float:
    """Seconds after which a message with a failed delivery moves; never less than `keep`."""
    return max(float(settings.NOTIFY_KEEP_FAILED_DAYS) * DAY, keep())


def keep_archived() -> float | None:
    """Seconds from acceptance until an archived message may be deleted; None: never."""
    days = settings.NOTIFY_ARCHIVE_DAYS
    return max(days * DAY, keep_failed()) if days else None


def keep_keys() -> float:
    """Seconds for which an idempotency key is known."""
    return keep_failed() + _KEY_MARGIN_SECONDS


_DELIVERIES = Table(ColdReceiveMsg, (Table(ColdAttempt, of="copy_id"),), of="msg_id")
MESSAGES = Table(ColdBizMsg, (_DELIVERIES,))

ARCHIVE = Archive("notify", (MESSAGES,), keep_archived, hot=BizMsg)
KEYS = Archive("notify.keys", (Table(IdempotencyKey),), keep_keys)


def kept_data() -> Sequence[kept.KeptData]:
    from msgplatform.core.archive import kept  # programs load the module without it

    hot_settings = ("NOTIFY_KEEP_DAYS", "NOTIFY_KEEP_FAILED_DAYS")
    return (
        kept.of_ids(
            _("messages with deliveries and attempts"), BizMsg, keep, *hot_settings,
            ending=kept.ARCHIVED,
        ),
        kept.of_table(_("archived messages"), MESSAGES, keep_archived, "NOTIFY_ARCHIVE_DAYS"),
        kept.of_table(_("idempotency keys"), KEYS.tables[0], keep_keys, "NOTIFY_KEEP_FAILED_DAYS"),
    )  # fmt: skip
