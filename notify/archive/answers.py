"""Remove answers of consumers that are older than their subscription's log policy allows: headers
and body, in hot tables and archive. The attempt stays.

Attempts are read by ids, which are ordered by time, a page at a time. Subscriptions that keep
answers for the same time share a walk. The walk's cursor is in the subscriptions' rows
(`answers_removed_below`): after a change of the policy the walk goes on from the cursor. Without
such a subscription a step reads only the small table of subscriptions.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import Q

from msgplatform.core.archive.description import horizon
from msgplatform.core.archive.walk import PAGE
from msgplatform.core.data import chunks, claims, transactions
from msgplatform.models import FailureGroup
from notify.archive import stores
from notify.archive.stores import Store
from notify.models import BizReceive, ReceiveMsg
from notify.monitor.counters import FLOW
from notify.subscriptions import answer_log

_MINUTES = 10  # between two steps when there is little to do
_EMPTY = {"response_headers": "", "response_body": ""}


def remove_old(now: datetime) -> bool:
    """Take one bounded step; True while there is more. Can be repeated at any point.

    Raises OperationalError when a database is unavailable; the step is repeated then.
    """
    # The time is rounded down: each new time writes cursors, and an idle platform should not write.
    now = now.replace(minute=now.minute // _MINUTES * _MINUTES, second=0, microsecond=0)
    cursors_by_seconds: dict[float, dict[int, int]] = defaultdict(dict)
    is_limited = Q(log_days__isnull=False) | Q(log_answers=answer_log.Kept.NONE)
    columns = ("id", "log_answers", "log_days", "answers_removed_below")
    for pk, policy, days, cursor in BizReceive.objects.filter(is_limited).values_list(*columns):
        kept_seconds = answer_log.keep_seconds(policy, days)
        if kept_seconds is not None:
            cursors_by_seconds[kept_seconds][pk] = cursor
    for seconds, cursors in cursors_by_seconds.items():
        end = horizon(now, seconds)
        start = min(cursors.values())
        if start >= end:
            continue
        ids = [pk for pk, cursor in cursors.items() if cursor == start]
        next_cursor = min([end, *(cursor for cursor in cursors.values() if cursor > start)])
        # Hot first: an attempt that moves meanwhile is in the archive by then.
        pages = [_page(store, start, next_cursor) for store in (stores.hot(), stores.cold())]
        new_cursor = min([next_cursor, *(page[-1][0] + 1 for page in pages if len(page) == PAGE)])
        by_id = {pk: copy for page in pages for pk, copy in page if pk < new_cursor}
        deliveries: set[int] = set()
        for store in (stores.hot(), stores.cold()):
            rows = store.deliveries.filter(id__in=set(by_id.values()), biz_receive_id__in=ids)
            deliveries.update(rows.order_by().values_list("id", flat=True))
        if attempts := sorted(pk for pk, copy in by_id.items() if copy in deliveries):
            transactions.retrying(partial(_empty_hot, attempts, sorted(deliveries)))
            # After the commit, so that an archive that hangs locks no hot deliveries.
            _empty(stores.cold(), attempts)
        # A failure group has the text of its newest answer.
        groups = FailureGroup.objects.filter(
            flow=FLOW, subject__in=ids, last_at__lt=now - timedelta(seconds=seconds)
        )
        groups.exclude(said="").update(said="")
        subscriptions = BizReceive.objects.filter(id__in=ids, answers_removed_below=start)
        subscriptions.update(answers_removed_below=new_cursor)
        return True
    return False


def _page(store: Store, start: int, end: int) -> list[tuple[int, int]]:
    rows = store.attempts.filter(id__gte=start, id__lt=end).order_by("id")
    return list(rows.values_list("id", "copy_id")[:PAGE])


def _empty_hot(attempts: Sequence[int], deliveries: Sequence[int]) -> None:
    with transaction.atomic(durable=True):
        # An archiver locks the deliveries whose attempts it copies. When this statement returns, a
        # copy is committed in the archive, or a later copy has no answers.
        list(ReceiveMsg.objects.select_for_update().filter(id__in=deliveries).order_by("id"))
        _empty(stores.hot(), attempts)


def _empty(store: Store, attempts: Sequence[int]) -> None:
    for chunk in chunks(attempts, claims.CHUNK):
        rows = store.attempts.filter(id__in=chunk).exclude(**_EMPTY)
        claims.update_by_key(rows, _EMPTY, store.using)
