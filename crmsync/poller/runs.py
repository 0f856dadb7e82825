"""Runs in the database.

    reading ──> read       no further row lies below the horizon
       └──────> failed     the source has no versions to compare

A run begins with the first rows that are read: a look without rows leaves no run.
"""

from collections.abc import Collection

from django.db import transaction

from crmsync import models
from crmsync.directory import Policy
from crmsync.models import Run, Watermark
from crmsync.models.sources import MAX_RUN
from crmsync.poller.store import require_lease
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import LeaseLost

_MESSAGE = 500


def begin(
    policy: Policy,
    holder: str,
    kind: str,
    unread: int,
    is_requested: bool = False,
    instead_of: int = 0,
) -> int:
    """Begin a run and return its id. With `is_requested` the request is taken in the same
    transaction, so that it makes one run only. The run `instead_of` ends in the same transaction
    too. Raises LeaseLost when another poller holds the policy, or when the request was taken or
    replaced meanwhile.

    A run of everything forgets how far the source was read.
    """
    run_id = ids.new(ids.bucket(policy.id, None))

    def once() -> int:
        with transaction.atomic():
            # If the connection broke after the commit, the run is stored already.
            if Run.objects.filter(pk=run_id).exists():
                return run_id
            now = require_lease(policy, holder)
            if is_requested:
                rows = models.Policy.objects.filter(pk=policy.id, requested=kind)
                if not rows.update(requested="", requested_by=""):
                    raise LeaseLost(f"the run of the policy {policy.name} was begun already")
            if instead_of:
                finish(instead_of)
            if kind == models.Policy.Kind.FULL:
                Watermark.objects.filter(policy_id=policy.id).delete()
            Run.objects.create(
                id=run_id, policy_id=policy.id, kind=kind, started_at=now, unread=unread,
                requested_by=policy.requested_by if is_requested else "",
            )  # fmt: skip
        return run_id

    return transactions.retrying(once)


def finish(run_id: int, problem: str = "") -> None:
    """End a run that has read everything, or could not because of a `problem`."""
    state = Run.State.FAILED if problem else Run.State.READ
    rows = Run.objects.filter(pk=run_id, state=Run.State.READING)
    transactions.retrying(
        lambda: rows.update(state=state, read_at=sql.now(), problem=problem[:_MESSAGE])
    )


def unfinished(policy_id: int, kinds: Collection[str]) -> Run | None:
    """The newest run of these kinds that an earlier holder of the policy left unfinished. Older
    unfinished runs are ended, because no poller would continue them."""
    since = ids.first_id_at(sql.now() - MAX_RUN)
    rows = Run.objects.filter(policy_id=policy_id, id__gte=since)
    runs = list(rows.filter(state=Run.State.READING, kind__in=kinds).order_by("-id"))
    for older in runs[1:]:
        finish(older.pk)
    return runs[0] if runs else None
