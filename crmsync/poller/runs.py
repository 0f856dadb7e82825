"""Runs as rows: begun with the first rows that are read, ended when everything is read."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from crmsync import models
from crmsync.directory import Policy
from crmsync.models import Run, Watermark
from msgplatform.core.data import ids, sql

_MESSAGE = 500


def begin(policy: Policy, kind: str, unread: int, requested: bool = False) -> int | None:
    """A run's id. With `requested` the request is taken in the same step: None when it is gone.

    A run of everything forgets how far the source was read.
    """
    run_id = ids.new(ids.bucket(policy.id, None))
    return sql.retrying(lambda: _begin(policy, kind, unread, requested, run_id))


def _begin(policy: Policy, kind: str, unread: int, requested: bool, run_id: int) -> int | None:
    with transaction.atomic():
        if requested:
            rows = models.Policy.objects.filter(pk=policy.id, requested=kind)
            if not rows.update(requested="", requested_by=""):
                return None
        if kind == models.Policy.Kind.FULL:
            Watermark.objects.filter(policy_id=policy.id).delete()
        Run.objects.create(
            id=run_id, policy_id=policy.id, kind=kind, started_at=sql.now(), unread=unread,
            requested_by=policy.requested_by if requested else "",
        )  # fmt: skip
    return run_id


def finish(run_id: int, problem: str = "") -> None:
    """Everything is read, or it cannot be read because of a `problem`."""
    state = Run.State.FAILED if problem else Run.State.READ
    rows = Run.objects.filter(pk=run_id, state=Run.State.READING)
    sql.retrying(lambda: rows.update(state=state, read_at=sql.now(), problem=problem[:_MESSAGE]))


def unfinished(policy_id: int) -> Sequence[Run]:
    """Those that an earlier holder of the policy left, newest first."""
    rows = Run.objects.filter(policy_id=policy_id).order_by("-id")[:20]
    return [run for run in rows if run.state == Run.State.READING]
