"""The outcomes of messages that bulk jobs resent: arrived, failed, waiting.

Each step of a job stores a batch with the ids of its messages before it changes them. `run_bulk`
asks the flow about a few batches at a time, at growing intervals, until all messages of a batch
have ended. So a job's page only adds up the numbers of the batches. Ids are kept for a month, and
listed batch by batch.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

import msgspec
from django.db.models import Sum, Window
from django.db.models.functions import Now, RowNumber
from django.db.utils import DatabaseError, InterfaceError, OperationalError

from msgplatform.core import flows, logging
from msgplatform.core.connections import briefly
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.actions import Ending
from msgplatform.core.flows.bulk_pages import read_id
from msgplatform.jobs.models import BulkBatch, BulkJob

log = logging.get(__name__)

EVERY_SECONDS = 2.0
MAX_BATCHES = 20  # of one turn: some thousand messages
# Seconds between two looks at a batch: a tenth of its age, within these bounds.
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 3600.0
# Seconds until a step without `finish` is looked at: the lease of its job, which has ended then.
_STEP_SECONDS = 30.0
# Messages whose retries last longer keep the outcome of the last look.
KEEP_IDS = timedelta(days=30)
ENDINGS: tuple[Ending, ...] = ("arrived", "failed", "waiting")
_LETTERS = {ending: ending[0] for ending in ENDINGS}
_UNKNOWN = "u"
_PAGE_BATCHES = 20  # batches that are read at once


class Sums(msgspec.Struct, frozen=True):
    """The outcomes of a job's messages; `unknown` counts messages that the flow does not know."""

    sent: int = 0
    arrived: int = 0
    failed: int = 0
    waiting: int = 0

    @property
    def unknown(self) -> int:
        return max(0, self.sent - self.arrived - self.failed - self.waiting)


class Batch:
    """The batch of one step of a job."""

    def __init__(self, job: BulkJob) -> None:
        self._job = job
        self._pk = 0

    def note(self, ids: Iterable[int | str]) -> None:
        """Store the ids before the step changes the messages. The flow is not asked about them
        while the step runs, because it would answer with their state before."""
        new_ids = [str(pk) for pk in ids]
        if not new_ids:
            return
        now = sql.now()
        batch, is_new = BulkBatch.objects.get_or_create(
            job_id=self._job.pk,
            cursor=self._job.cursor,
            defaults={
                "ids": " ".join(new_ids), "size": len(new_ids), "waiting": len(new_ids),
                "created_at": now, "look_at": now + timedelta(seconds=_STEP_SECONDS),
            },
        )  # fmt: skip
        if not is_new:  # a killed run may have changed messages of this step
            all_ids = list(dict.fromkeys([*batch.ids.split(), *new_ids]))
            batch.ids, batch.size, batch.endings = " ".join(all_ids), len(all_ids), ""
            batch.look_at = now + timedelta(seconds=_STEP_SECONDS)
            batch.save(update_fields=["ids", "size", "endings", "look_at"])
        self._pk = batch.pk

    def finish(self) -> None:
        """The step is over, so the flow may be asked about its messages."""
        if self._pk:
            BulkBatch.objects.filter(pk=self._pk).update(look_at=sql.now())


class Outcomes:
    """Asks flows about batches that are due. The owner's loop may call it at every turn."""

    def __init__(self) -> None:
        self._next = Every(EVERY_SECONDS)

    def turn_if_due(self) -> None:
        if not self._next.take():
            return
        # Jobs take turns: a job of thousands of batches does not hold up the others.
        turn = Window(RowNumber(), partition_by="job_id", order_by="look_at")
        due = BulkBatch.objects.filter(look_at__lte=Now()).order_by(turn, "look_at")
        away_flows = set[str]()
        for batch in sql.first(due, MAX_BATCHES):
            flow, now = flows.get(batch.job.flow), sql.now()
            age = now - batch.created_at
            if flow is None or age > KEEP_IDS:
                BulkBatch.objects.filter(pk=batch.pk).update(ids="", endings="", look_at=None)
                continue
            wait = min(max(age.total_seconds() / 10, MIN_WAIT_SECONDS), MAX_WAIT_SECONDS)
            values: dict[str, object] = {"look_at": now + timedelta(seconds=wait)}
            ids = batch.ids.split()
            # If two runners ask at once, only the first UPDATE finds `look_at` unchanged. A step
            # that adds ids changes `look_at` too, so that the answer without these ids is not
            # stored.
            row = BulkBatch.objects.filter(pk=batch.pk, look_at=batch.look_at)
            if flow.name in away_flows:  # moved, too: it would keep others from being looked at
                row.update(**values)
                continue
            try:
                outcome = flow.action(batch.job.action).outcome
                with briefly():  # jobs of the other flows wait for this thread
                    endings = outcome(ids) if outcome else {}
            except Exception as error:
                is_of_database = isinstance(error, OperationalError | InterfaceError)
                if is_of_database and bisect.is_unanswered(error):
                    raise
                # The flow is asked about this batch later; the other batches go on.
                log.warning("outcome_unknown", job=batch.job_id, why=str(error)[:200])
                if not is_of_database and isinstance(error, UNAVAILABLE):
                    away_flows.add(flow.name)
            else:
                counts = Counter(endings.get(pk) for pk in ids)
                values |= {ending: counts[ending] for ending in ENDINGS}
                values["endings"] = "".join(
                    _LETTERS[endings[pk]] if pk in endings else _UNKNOWN for pk in ids
                )
                if not values["waiting"]:  # all have ended: the next look only drops the ids
                    values["look_at"] = batch.created_at + KEEP_IDS + timedelta(seconds=1)
            try:
                row.update(**values)
            except DatabaseError as error:
                if bisect.is_unanswered(error):
                    raise
                log.warning("outcome_not_stored", job=batch.job_id, why=str(error)[:200])


def sums(job: BulkJob) -> Sums:
    """The sums over the job's batches. A batch is one row for some hundred messages."""
    names = {"sent": "size", "arrived": "arrived", "failed": "failed", "waiting": "waiting"}
    totals = job.batches.aggregate(**{name: Sum(column) for name, column in names.items()})
    return Sums(**{name: value or 0 for name, value in totals.items()})


class MessagePage(msgspec.Struct, frozen=True):
    """Some of a job's messages with one ending; `cursor` is '' on the last page."""

    ids: list[str]
    cursor: str = ""


def list_messages(job: BulkJob, ending: Ending, cursor: str, limit: int) -> MessagePage:
    """The messages with this ending, in the order in which they were resent.

    Reads only the batches of the page. `cursor` is a batch and a place among all its ids, which
    stays when the endings of others change. Raises InvalidInput.
    """
    pk_text, _dot, place_text = cursor.partition(".")
    first_pk, first_place = read_id(pk_text), read_id(place_text)
    rows = job.batches.filter(**{f"{ending}__gt": 0}).exclude(ids="").order_by("pk")
    listed_ids: list[str] = []
    next_pk = first_pk
    while page := list(rows.filter(pk__gte=next_pk).defer("cursor")[:_PAGE_BATCHES]):
        for batch in page:
            # A batch has no endings before its first look: all its messages are waiting.
            letters = batch.endings or _LETTERS["waiting"] * batch.size
            min_place = first_place if batch.pk == first_pk else 0
            for place, (pk, letter) in enumerate(zip(batch.ids.split(), letters, strict=False)):
                if place < min_place or letter != _LETTERS[ending]:
                    continue
                if len(listed_ids) == limit:
                    return MessagePage(listed_ids, f"{batch.pk}.{place}")
                listed_ids.append(pk)
        next_pk = page[-1].pk + 1
    return MessagePage(listed_ids)


def has_dropped_ids(job: BulkJob, ending: Ending) -> bool:
    """True if the ids of some messages with this ending were dropped."""
    return job.batches.filter(ids="", **{f"{ending}__gt": 0}).exists()
