"""What became of the messages that bulk jobs sent again: arrived, failed once more, still waiting.

Each step of a job leaves a batch with the ids that it was about, before it changes them. `run_bulk`
asks the flow about a few batches at a time, at longer and longer intervals, until all of a batch's
messages have ended. So a job's page adds up numbers, however many messages there were; which they
were is kept for a month, and listed batch by batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Sum
from django.db.models.functions import Now
from django.db.utils import InterfaceError, OperationalError

from msgplatform.core import flows, logging
from msgplatform.core.bulk.cursor import read_id
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from msgplatform.models import BulkBatch, BulkJob

log = logging.get(__name__)

EVERY_SECONDS = 2.0
BATCHES = 20  # that one look asks about: some thousand messages
FIRST_SECONDS, LAST_SECONDS = 1.0, 3600.0
# A step is over, or is repeated, within the lease of its job.
_STEP_SECONDS = 30.0
# How long ids are kept: longer than any retry schedule lasts.
KEPT = timedelta(days=30)
ENDINGS: tuple[flows.Ending, ...] = ("arrived", "failed", "waiting")
_LETTERS = {ending: ending[0] for ending in ENDINGS}
_UNKNOWN = "u"
_LISTED_AT_ONCE = 20  # batches


@dataclass(frozen=True)
class Sums:
    """What became of a job's messages. `unknown` are those that nobody can say anything about."""

    sent: int = 0
    arrived: int = 0
    failed: int = 0
    waiting: int = 0

    @property
    def unknown(self) -> int:
        return max(0, self.sent - self.arrived - self.failed - self.waiting)


class Batch:
    """Notes the ids of one step."""

    def __init__(self, job: BulkJob) -> None:
        self._job = job
        self._pk = 0

    def note(self, ids: Iterable[int | str]) -> None:
        """Before the step changes them. They are not asked about while the step runs: what they
        were before would be taken for what became of them."""
        given = [str(pk) for pk in ids]
        if not given:
            return
        now = sql.now()
        batch, made = BulkBatch.objects.get_or_create(
            job_id=self._job.pk,
            cursor=self._job.cursor,
            defaults={
                "ids": " ".join(given), "size": len(given), "waiting": len(given),
                "created_at": now, "look_at": now + timedelta(seconds=_STEP_SECONDS),
            },
        )  # fmt: skip
        if not made:  # killed in this step before: what it had done then is not found again
            both = list(dict.fromkeys([*batch.ids.split(), *given]))
            batch.ids, batch.size, batch.endings = " ".join(both), len(both), ""
            batch.look_at = now + timedelta(seconds=_STEP_SECONDS)
            batch.save(update_fields=["ids", "size", "endings", "look_at"])
        self._pk = batch.pk

    def done(self) -> None:
        """The step is over: its messages may be asked about."""
        if self._pk:
            BulkBatch.objects.filter(pk=self._pk).update(look_at=sql.now())


class Outcomes:
    """Asks about what is due; its owner's loop may call it at every turn."""

    def __init__(self) -> None:
        self._next = Every(EVERY_SECONDS)

    def turn_if_due(self) -> None:
        if not self._next.take():
            return
        due = BulkBatch.objects.filter(look_at__lte=Now()).order_by("look_at")
        for batch in due.select_related("job")[:BATCHES]:
            flow, now = flows.get(batch.job.flow), sql.now()
            age = now - batch.created_at
            if flow is None or age > KEPT:
                BulkBatch.objects.filter(pk=batch.pk).update(ids="", endings="", look_at=None)
                continue
            wait = min(max(age.total_seconds() / 10, FIRST_SECONDS), LAST_SECONDS)
            seen: dict[str, object] = {"look_at": now + timedelta(seconds=wait)}
            ids = batch.ids.split()
            try:
                outcome = flow.action(batch.job.action).outcome
                found = outcome(ids) if outcome else {}
            except (OperationalError, InterfaceError):
                raise
            except Exception as error:  # noqa: BLE001 - asked again later; others go on
                log.warning("outcome_unknown", job=batch.job_id, why=str(error)[:200])
            else:
                seen |= _seen(ids, found)
                if not seen["waiting"]:  # it is over: only to be forgotten
                    seen["look_at"] = batch.created_at + KEPT + timedelta(seconds=1)
            # Two runners may do this at once: the later one writes what it saw later. One that adds
            # ids meanwhile has set another time.
            BulkBatch.objects.filter(pk=batch.pk, look_at=batch.look_at).update(**seen)


def _seen(ids: Iterable[str], found: Mapping[str, flows.Ending]) -> dict[str, object]:
    """The columns that say what became of a batch's messages."""
    counts = Counter(found.get(pk) for pk in ids)
    letters = "".join(_LETTERS[found[pk]] if pk in found else _UNKNOWN for pk in ids)
    return {"endings": letters, **{ending: counts[ending] for ending in ENDINGS}}


def sums(job: BulkJob) -> Sums:
    """Added up over the job's batches, one row for some hundred messages."""
    names = {"sent": "size", "arrived": "arrived", "failed": "failed", "waiting": "waiting"}
    found = job.batches.aggregate(**{name: Sum(column) for name, column in names.items()})
    return Sums(**{name: value or 0 for name, value in found.items()})


@dataclass(frozen=True)
class Listed:
    """Some of a job's messages with one ending; `cursor` is '' on the last page."""

    ids: list[str]
    cursor: str = ""


def listed(job: BulkJob, ending: flows.Ending, cursor: str, limit: int) -> Listed:
    """The messages that are counted under this ending, in the order in which they were sent again.

    Reads no more batches than it needs. `cursor` is a batch and a place in it. Raises InvalidInput.
    """
    first, _dot, place = cursor.partition(".")
    begin, skip = read_id(first), read_id(place)
    rows = job.batches.filter(**{f"{ending}__gt": 0}).exclude(ids="").order_by("pk")
    found: list[str] = []
    following = begin
    while page := list(rows.filter(pk__gte=following).defer("cursor")[:_LISTED_AT_ONCE]):
        for batch in page:
            wanted = _with_ending(batch, ending)
            for at in range(skip if batch.pk == begin else 0, len(wanted)):
                if len(found) == limit:
                    return Listed(found, f"{batch.pk}.{at}")
                found.append(wanted[at])
        following = page[-1].pk + 1
    return Listed(found)


def _with_ending(batch: BulkBatch, ending: flows.Ending) -> list[str]:
    ids = batch.ids.split()
    # One at which nobody has looked yet waits as a whole.
    letters = batch.endings or _LETTERS["waiting"] * len(ids)
    return [pk for pk, letter in zip(ids, letters, strict=False) if letter == _LETTERS[ending]]


def are_forgotten(job: BulkJob, ending: flows.Ending) -> bool:
    """Whether some of those that are counted are not listed any more."""
    return job.batches.filter(ids="", **{f"{ending}__gt": 0}).exists()
