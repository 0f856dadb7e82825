"""Archiver: moves final messages to the archive, and deletes messages that are too old.

Several archivers may run: rows are locked while they move, so each row moves once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import CharField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce, Now

from msgplatform.core import alerts
from msgplatform.core.archive.copying import NotVerified, Part
from msgplatform.core.archive.description import delete_whole
from msgplatform.core.archive.retention import Retention, reason
from msgplatform.core.archive.router import cold_alias
from msgplatform.core.archive.walk import Walk, look_ages
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import engines, sql, transactions
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message
from notify.archive import retention, stores
from notify.archive.due import Due, bounded_chunks, candidates, forget_restored, restored_page
from notify.models import BizMsg, ColdBizMsg, IdempotencyKey, ReceiveMsg, RestoredMsg

# Seconds between two rounds. Messages move at an age of days, so a round may be late.
ROUND_SECONDS = 20.0
# Seconds that the copy of a chunk may take. A frozen archiver keeps its locks for as long, but no
# other program changes final rows.
_COPY_SECONDS = 120
_KIND = "notify.archive"
_KEY = Subquery(IdempotencyKey.objects.filter(id=OuterRef("id")).values("key"))
_RESTORED = Subquery(RestoredMsg.objects.filter(id=OuterRef("id")).values("restored_at"))
# Columns of the archive that the hot table of messages does not have.
_ADDED = {
    "key": Coalesce(_KEY, Value(""), output_field=CharField()),
    "archived_at": Now(),
    "restored_at": _RESTORED,
}


def move(message_ids: Sequence[int], due: Due) -> int:
    """Move the messages that may still go; returns their number. Can be repeated at any point.

    Raises NotVerified, or OperationalError when a database is unavailable; nothing is lost then.
    """

    def once() -> int:
        with transaction.atomic(durable=True):
            # The messages that may go and their deliveries are locked until the commit.
            messages = BizMsg.objects.select_for_update().filter(
                id__in=sorted(message_ids), state=BizMsg.State.DISTRIBUTED
            )
            statuses: dict[int, set[int]] = {
                pk: set() for pk in messages.order_by("id").values_list("id", flat=True)
            }
            delivery_rows = ReceiveMsg.objects.select_for_update().filter(msg_id__in=list(statuses))
            rows = list(delivery_rows.order_by().values_list("id", "msg_id", "status"))
            for _id, message_id, status in rows:
                statuses[message_id].add(status)
            moving_ids = due.find_movable(statuses)
            if not moving_ids:
                return 0
            moving_set = set(moving_ids)
            delivery_ids = [pk for pk, message_id, _status in rows if message_id in moving_set]
            parts = stores.parts(stores.hot(), stores.cold(), moving_ids, delivery_ids, _ADDED)
            # The archive commits before the hot rows are deleted. An archiver that dies in between
            # leaves archived rows. They do not count while the hot rows exist, and the next move
            # replaces them.
            copy_to_archive(parts)
            failpoint("archiver_after_copy")
            counts = [part.verify() for part in parts]
            failpoint("archiver_after_verify")
            for part, count in reversed(list(zip(parts, counts, strict=True))):
                part.delete(count)
            forget_restored(moving_ids)
            failpoint("archiver_before_delete_commit")
        return len(moving_ids)

    # Connect first, so that nothing is locked when the archive is unavailable.
    connections[cold_alias()].ensure_connection()
    return transactions.retrying(once)


def copy_to_archive(parts: Sequence[Part]) -> None:
    """Write messages, deliveries and attempts in one transaction of the archive."""
    messages = ColdBizMsg.objects.using(cold_alias()).filter(id__in=parts[0].keys)
    with transaction.atomic(using=cold_alias(), savepoint=False):
        # Keys are deleted from the hot table after a while. The archive then has the only key of a
        # message that was brought back.
        keys = dict(messages.exclude(key="").values_list("id", "key"))
        # The archive may have rows of a killed archiver, and of messages that were brought back.
        delete_whole(retention.MESSAGES, parts[0].keys)
        for part in parts:
            part.copy()
        for message_id, key in keys.items():
            messages.filter(id=message_id, key="").update(key=key)


class Archiver(Worker):
    role = "archiver"
    idle_seconds = ROUND_SECONDS / 4  # between two rounds a turn does nothing

    def __init__(self) -> None:
        super().__init__()
        self._walk: Walk | None = None
        # A round moves the messages that were old enough at this time. By the present time a round
        # under steady traffic would never end: new rows reach their age all the time.
        self._looked_at: datetime | None = None
        self._refused: Sequence[int] = ()  # the page that could not be moved
        self._retention, self._keys = Retention(retention.ARCHIVE), Retention(retention.KEYS)
        self._next_round = Every(ROUND_SECONDS)
        # True if the alert may be open. An earlier process may have raised the alert.
        self._has_alert = True

    def start(self) -> None:
        # Close open connections: only new connections get the longer timeout.
        connections.close_all()
        connection_created.connect(_allow_for_copying, dispatch_uid="archiver")

    def turn(self) -> bool:
        """Move one page of messages, or delete messages that are too old. Returns True if there may
        be more."""
        if not self._next_round.is_due:
            return False
        now = sql.now()
        self._retention.prepare(now)
        self._walk = self._walk or walk(now)
        # A round that lasts longer than ROUND_SECONDS includes new messages too.
        if self._looked_at is None or now - self._looked_at > timedelta(seconds=ROUND_SECONDS):
            self._looked_at = now
        looked_at = self._looked_at
        page = self._refused or self._walk.page(looked_at) or restored_page(looked_at)
        self.heartbeat.lag = self._walk.lag(now)
        if page:
            due, done_before = Due.at(now), self.heartbeat.done
            try:
                lock_error: bisect.ItemsLocked | None = None
                for chunk in bounded_chunks(due.read_movable(page), stores.hot()):
                    move_chunk = partial(self._move, due=due)
                    try:
                        bisect.isolate(chunk, move_chunk, self._set_aside, _is_unavailable)
                    except bisect.ItemsLocked as error:
                        lock_error = error  # other chunks must not wait
                if lock_error:
                    raise lock_error
            except UNAVAILABLE as error:
                self._refused = page
                if isinstance(error, DatabaseError) and not transactions.is_away(error):
                    # The archive's database answers, but takes no message at all.
                    self._has_alert = True
                    subject = lazy_message("Messages cannot be moved to the archive")
                    alerts.raise_alert(_KIND, subject, reason(error), key=_KIND)
                    self._retention.purge(now)  # purging may free a full disk
                raise
            self._refused = ()
            # A page without movable messages does not show that the archive works.
            if self.heartbeat.done > done_before:
                self._resolve()
            return True
        self._resolve()
        # Keys are deleted after all due messages are archived, because archiving copies the key.
        if self._retention.purge(now) or self._keys.purge(now) or retention.remove_answers(now):
            return True
        self._next_round.restart()
        self._looked_at = None
        return False

    def _move(self, chunk: Sequence[int], due: Due) -> Sequence[int]:
        self.heartbeat.done += move(chunk, due)
        return chunk

    def _resolve(self) -> None:
        if self._has_alert:
            alerts.resolve(_KIND)
            self._has_alert = False

    def _set_aside(self, message_id: int, error: Exception) -> alerts.AlertEvent:
        """Leave the message in the hot table until the next look; returns the alert."""
        self.heartbeat.failed += 1
        return alerts.AlertEvent(
            _KIND,
            lazy_message("Message %(id)s could not be moved to the archive", id=str(message_id)),
            str(error),
            key=f"{_KIND}:{message_id}",
        )


def walk(now: datetime) -> Walk:
    """Look at a message when it may move without failures, and again at the age for failures."""
    return Walk(now, look_ages((retention.keep(), retention.keep_failed())), candidates)


def _allow_for_copying(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Allow idle transactions: the locking transaction waits while the archive's server copies."""
    engines.of_connection(connection).allow_idle_transactions(connection, _COPY_SECONDS)


def _is_unavailable(error: Exception) -> bool:
    """True if a server is unavailable. NotVerified is the fault of one message."""
    return not isinstance(error, NotVerified) and bisect.is_unavailable(error)
