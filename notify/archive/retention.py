"""How long messages, idempotency keys and answers of consumers are kept; and the removal of answers
that are older than their subscription's log policy allows.

An answer is its headers and its body, in hot tables and archive. The attempt stays. Attempts are
read by ids, which are ordered by time, a page at a time. Subscriptions that keep answers for the
same time share a walk. The walk's cursor is in the subscriptions' rows (`answers_removed_below`):
after a change of the policy the walk goes on from the cursor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive.description import DAY, Archive, Table, earliest_part, horizon
from msgplatform.core.archive.walk import PAGE
from msgplatform.core.data import chunks, claims, transactions
from msgplatform.models import FailureGroup
from notify.archive import stores
from notify.models import BizMsg, BizReceive, IdempotencyKey, ReceiveMsg, cold
from notify.monitor.counters import FLOW
from notify.subscriptions import limits

if TYPE_CHECKING:
    from msgplatform.core.archive import kept

# A duplicate of a request may come as late as the last retry of a message that depends on it.
_KEY_MARGIN_SECONDS = limits.MAX_DELAY_SECONDS + DAY


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


_DELIVERIES = Table(cold.ColdReceiveMsg, (Table(cold.ColdAttempt, of="copy_id"),), of="msg_id")
MESSAGES = Table(cold.ColdBizMsg, (_DELIVERIES,))

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


# -- answers of consumers --------------------------------------------------------------------------
_MINUTES = 10  # between two steps when there is little to do
_EMPTY = {"response_headers": "", "response_body": ""}


def remove_answers(now: datetime) -> bool:
    """Take one bounded step of the removal; True while there is more. Can be repeated at any point.

    Raises OperationalError when a database is unavailable; the step is repeated then.
    """
    # The time is rounded down: each new time writes cursors, and an idle platform should not write.
    now = now.replace(minute=now.minute // _MINUTES * _MINUTES, second=0, microsecond=0)
    cursors_by_seconds: dict[float, dict[int, int]] = defaultdict(dict)
    is_limited = Q(log_days__isnull=False) | Q(log_answers=limits.KeptAnswers.NONE)
    columns = ("id", "log_answers", "log_days", "answers_removed_below", "created_at")
    subscriptions = BizReceive.objects.filter(is_limited)
    for pk, policy, days, cursor, created_at in subscriptions.values_list(*columns):
        kept_seconds = limits.answer_seconds(policy, days)
        if kept_seconds is not None:
            # A subscription has no older attempts, and other attempts may be very many.
            first_id = earliest_part(horizon(created_at, 0.0))
            cursors_by_seconds[kept_seconds][pk] = max(cursor, first_id)
    for seconds, cursors in cursors_by_seconds.items():
        end = horizon(now, seconds)
        start = min(cursors.values())
        if start >= end:
            continue
        ids = [pk for pk, cursor in cursors.items() if cursor == start]
        next_cursor = min([end, *(cursor for cursor in cursors.values() if cursor > start)])
        pages = [_page(store, start, next_cursor) for store in stores.both()]
        new_cursor = min([next_cursor, *(page[-1][0] + 1 for page in pages if len(page) == PAGE)])
        attempts = [(pk, delivery) for page in pages for pk, delivery in page if pk < new_cursor]
        delivery_ids: set[int] = set()
        for store in stores.both():
            rows = store.deliveries.filter(biz_receive_id__in=ids)
            rows = rows.filter(id__in={delivery for _pk, delivery in attempts})
            delivery_ids.update(rows.order_by().values_list("id", flat=True))
        # An attempt that moves meanwhile is in both stores.
        if attempt_ids := sorted({pk for pk, delivery in attempts if delivery in delivery_ids}):
            transactions.retrying(partial(_empty_hot, attempt_ids, sorted(delivery_ids)))
            # After the commit, so that an archive that hangs locks no hot deliveries.
            _empty(stores.cold(), attempt_ids)
        # A failure group has the text of its newest answer.
        groups = FailureGroup.objects.filter(
            flow=FLOW, subject__in=ids, last_at__lt=now - timedelta(seconds=seconds)
        )
        groups.exclude(said="").update(said="")
        subscriptions = BizReceive.objects.filter(id__in=ids, answers_removed_below__lt=new_cursor)
        subscriptions.update(answers_removed_below=new_cursor)
        return True
    return False


def _page(store: stores.Store, start: int, end: int) -> list[tuple[int, int]]:
    rows = store.attempts.filter(id__gte=start, id__lt=end).order_by("id")
    return list(rows.values_list("id", "copy_id")[:PAGE])


def _empty_hot(attempt_ids: Sequence[int], delivery_ids: Sequence[int]) -> None:
    with transaction.atomic(durable=True):
        # An archiver locks the deliveries whose attempts it copies. When this statement returns, a
        # copy is committed in the archive, or a later copy has no answers.
        list(ReceiveMsg.objects.select_for_update().filter(id__in=delivery_ids).order_by("id"))
        _empty(stores.hot(), attempt_ids)


def _empty(store: stores.Store, attempt_ids: Sequence[int]) -> None:
    for chunk in chunks(attempt_ids, claims.CHUNK):
        rows = store.attempts.filter(id__in=chunk).exclude(**_EMPTY)
        claims.update_by_key(rows, _EMPTY, store.using)
