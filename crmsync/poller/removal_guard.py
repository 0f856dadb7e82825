"""The guard against removals: a run that would delete or clear too many of a CRM's records stops
before its first removal is sent, and waits for a person.

    held ── all is read, and the removals are few ──────> waiting, sent as any other record
      ├──── too many, and a person confirms ────────────> waiting
      ├──── too many, and a person refuses ─────────────> dismissed
      └──── a newer version removes nothing any more ───> as any other record

A removal is a request that deletes a record which the CRM may have, or that clears a field which
the version before did not clear. Each of them, whether it was read, is sent anew or replayed, is
held until the runs of its policy have read everything, because a source is read in pages. Then the
removals that are held count together with those of the last day: otherwise a source that is emptied
slowly would lie in many runs that are small. Other requests go on meanwhile.

Everything is in the database: the held records, the stop and the decision. The poller that holds
the policy carries them out, page by page, and its successor goes on where it was killed.
"""

from collections import Counter
from datetime import datetime, timedelta

from django.db.models import Sum

from crmsync.models import Policy, Record
from crmsync.monitor import counters
from crmsync.operations import add_endings
from crmsync.poller.store import require_lease
from msgplatform.core import logging
from msgplatform.core.data import claims, sql, transactions
from msgplatform.models import MinuteCounter

log = logging.get(__name__)

_WINDOW = timedelta(days=1)
# A run may read for hours, and a source that changes faster than its CRM takes changes is never
# read to the end. After this time the removals are judged by what was read until then.
_MAX_WAIT = timedelta(hours=1)
_OFF = 100  # percent
_PAGES = 20  # of a decision, before the policy's other work goes on
_State, _Removal, _Decision = Record.State, Record.Removal, Policy.Decision


def settle(policy: Policy, holder: str, is_reading: bool) -> bool:
    """Let the held records go, or stop, or carry out what a person has decided. Returns True as
    long as there may be more to do. Raises LeaseLost when another poller holds the policy."""
    now = sql.now()
    rows = Record.objects.filter(policy_id=policy.id, state=_State.HELD)
    since = rows.order_by("policy_id", "state", "next_at").values_list("next_at", flat=True).first()
    row = Policy.objects.get(pk=policy.id)  # `policy` may be older than a person's decision
    if since is None:  # nothing is held any more, whoever has decided that
        if row.stopped_at:
            _write_stop(policy, holder)
        return False
    if row.decision:
        for _ in range(_PAGES):
            if not _move_page(policy, holder, row.decision, row.decided_at):
                _write_stop(policy, holder)
                break
        return True
    if is_reading and since > now - _MAX_WAIT:
        return True
    removals = rows.count()
    # The removals that were let go within the window count, too.
    counted_rows = MinuteCounter.objects.filter(
        flow=counters.FLOW, subject=policy.id, name=counters.RELEASED, minute__gte=now - _WINDOW
    )
    total = removals + (counted_rows.aggregate(sum=Sum("value"))["sum"] or 0)
    # The removals are few if the policy has so many records: no more are counted.
    min_records = -(-total * 100 // policy.guard_percent)
    is_few = policy.guard_percent >= _OFF or total < policy.guard_records
    if row.stopped_at is None and is_few:
        _move_page(policy, holder, "", now)
    elif removals != row.stopped_removals:
        max_count = max(min_records, row.stopped_records)
        of_policy = Record.objects.filter(policy_id=policy.id)
        # In the order of the index, the newest first: those that are deleted are mostly old.
        in_crm = of_policy.filter(state=_State.CONFIRMED, deleted=False)
        in_crm = in_crm.order_by("-policy_id", "-state", "-next_at", "-id")[:max_count]
        others = of_policy.filter(
            state__in=[state for state in _State if state != _State.CONFIRMED]
        )
        records = min(in_crm.count() + others.order_by()[:max_count].count(), max_count)
        if row.stopped_at is None and records >= min_records:
            _move_page(policy, holder, "", now)
        else:
            _write_stop(policy, holder, removals, records)
            log.warning("removals_stopped", policy=str(policy), removals=removals, records=records)
    return True


@transactions.repeatable
def _write_stop(policy: Policy, holder: str, removals: int = 0, records: int = 0) -> None:
    """Stop with these numbers; without removals the stop is over."""
    now = require_lease(policy, holder)
    rows = Policy.objects.filter(pk=policy.id)
    if not removals:
        rows.update(decision="", decided_at=None, stopped_at=None)
    elif not rows.filter(decision="", stopped_at=None).update(stopped_at=now):
        rows = rows.filter(decision="")  # a person has decided on the numbers of before
    rows.update(stopped_removals=removals, stopped_records=records)


@transactions.repeatable
def _move_page(policy: Policy, holder: str, decision: str, until: datetime | None) -> int:
    """Move the next records that were held until then to where the decision, or '' for the guard's
    own, sends them. Returns their number."""
    now = require_lease(policy, holder)
    rows = Record.objects.filter(policy_id=policy.id, state=_State.HELD, next_at__lte=until)
    in_order = rows.select_for_update().order_by("policy_id", "state", "next_at", "id")
    records = list(in_order.only("id", "operation_id")[: claims.CHUNK])
    values = {"state": _State.WAITING, "removal": _Removal.RELEASED, "next_at": now}
    if decision == _Decision.REFUSED:
        values = {"state": _State.DISMISSED, "next_at": None}
        # As for other records of which nothing is sent: the operation ends.
        add_endings(Counter((record.operation_id, "replaced") for record in records), now)
    elif not decision and records:
        counters.add(Counter({(policy.id, counters.RELEASED): len(records)}), now)
    if records:
        own_rows = Record.objects.filter(pk__in=[record.pk for record in records])
        claims.update_by_key(own_rows, {**values, "updated_at": now})
    return len(records)
