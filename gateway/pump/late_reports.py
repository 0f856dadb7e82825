"""Reports that found no key in Redis: late ones, looked up in the archive by sequence and number.

A message that had ended as `unknown` gets its real ending and a second event. A Report without a
message is kept for a while (a pump may be about to archive its message), then archived alone.
"""

import time
from collections.abc import Callable, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from django.db import transaction

from gateway import notifications, sgip
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import ReportIn
from gateway.models import SgipMt, SgipMtPart, SgipReport
from gateway.monitor import counters, failures
from gateway.pump.rows import LeaseOver
from msgplatform.core import alerts, logging, personal
from msgplatform.core.daemons import bisect
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.tracing import spans
from msgplatform.core.tracing.context import Start
from notify.intake import intake

log = logging.get(__name__)

# Seconds between two look-ups of a Report, and of all together: a pump that was killed may have
# leased the message for SMS_LEASE_SECONDS (30 by default).
LOOK_SECONDS = 20.0
PATIENCE_SECONDS = 120.0
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=10)  # maximum difference of two machines' clocks


def settle(limit: int) -> int:
    """Look up `limit` Reports at most; returns how many are settled."""
    lease = store.take(keys.LIST_UNMATCHED, keys.UNMATCHED, limit, LOOK_SECONDS)
    settled_entries = bisect.isolate(lease.entries, partial(_settle_entries, lease), _set_aside)
    store.drop(keys.UNMATCHED, settled_entries)
    return len(settled_entries)


def _settle_entries(lease: store.Lease, entries: Sequence[str]) -> list[str]:
    """Returns the settled entries. The call may be repeated: it finds written rows again."""
    settled_entries = []
    for entry in entries:
        report = msgspec.json.decode(entry, type=ReportIn)
        parts = SgipMtPart.objects.filter(seqno=report.seqno, ts=report.ts, node=report.node)
        numbers = sgip.spellings(report.user_number)
        own_parts = parts.filter(user_number__in=numbers).order_by("-id")
        # The number in the Report's own spelling comes first.
        part = min(own_parts, key=lambda row: numbers.index(row.user_number), default=None)
        if part is not None and report.gateways:
            # A gateway may report only on messages that it got.
            own_messages = SgipMt.objects.filter(pk=part.mt_id, gateway_id__in=report.gateways)
            part = part if own_messages.exists() else None
        if part is None and time.time() - report.at < PATIENCE_SECONDS:
            continue  # once more when its lease is over
        failpoint("pump_unmatched_before_write")
        is_leased = partial(store.is_leased, lease, [entry])
        try:
            mt = transactions.retrying(partial(_write, report, part, ids.reserve(1), is_leased))
        except LeaseOver:
            log.warning("lease_over", reports=1)
            continue  # the pump that has taken it over drops it
        if mt is not None:
            failpoint("pump_unmatched_before_publish")
            event = notifications.late_report(mt)
            if context := spans.read_contexts([mt.pk]).get(mt.pk):
                event = msgspec.structs.replace(event, trace=Start(context, spans.now()))
            intake.publish_many([event])
        settled_entries.append(entry)
    return settled_entries


def _set_aside(entry: str, error: Exception) -> alerts.AlertEvent:
    """The alert about a Report that cannot be settled. The Report keeps its lease, and is tried
    again when that is over."""
    return alerts.AlertEvent(
        "sms.archive",
        lazy_message("A Report that found no message cannot be settled"),
        personal.mask_sentence(f"{entry[:500]}: {type(error).__name__}: {error}"[:1000]),
        key="sms.archive:report",
    )


def _write(
    report: ReportIn, part: SgipMtPart | None, block: ids.Block, is_leased: Callable[[], bool]
) -> SgipMt | None:
    """Write a Report down. Returns the message if the Report ended it: its event is to be
    published.

    The message is locked: of two pumps with two Reports, the second sees what the first has
    written. A Report that a killed pump has written already gives the same result.

    Raises LeaseOver, and writes nothing, if another pump has taken the Report over: an erasure may
    have changed that pump's row since, so that it is not found here.
    """
    at = datetime.fromtimestamp(report.at, UTC)
    (row_id,) = block.ids([0])
    row = SgipReport(
        id=row_id, mt_id=part.mt_id if part else 0, part=part.part if part else 0,
        node=report.node, ts=report.ts, seqno=report.seqno,
        user_number=part.user_number if part else report.user_number,
        state=report.state, error_code=report.error, received_at=at,
    )  # fmt: skip
    with transaction.atomic(durable=True):
        mt = SgipMt.objects.select_for_update().filter(pk=row.mt_id).first()
        # A killed pump may have written the Report without dropping it. A row's id is younger than
        # its Report, so that the key also bounds the search for Reports without a message.
        oldest = max(0, ids.first_id_at(at - _MAX_CLOCK_DIFFERENCE))
        columns = {
            name: getattr(row, name)
            for name in ("mt_id", "node", "ts", "seqno", "user_number", "state", "received_at")
        }
        is_written = SgipReport.objects.filter(id__gte=oldest, **columns).exists()
        if is_written:
            has_ended_it = mt and mt.final != SgipMt.Final.UNKNOWN and mt.reported_at == at
            return mt if has_ended_it else None
        if not is_leased():
            raise LeaseOver
        row.archived_at = sql.now()
        row.save(force_insert=True)
        if part is None:
            log.warning("report_unmatched", sequence=f"{report.node}:{report.ts}:{report.seqno}")
            return None
        SgipMtPart.objects.filter(pk=part.pk, state=None).update(
            state=report.state, error_code=report.error, reported_at=at
        )
        if mt is None or mt.final != SgipMt.Final.UNKNOWN:
            return None  # the retention has deleted it, or its ending is known
        # A part may have been sent several times: a Report on any of its Submits is enough.
        states: dict[int, tuple[int | None, int | None]] = {}
        for own_part in SgipMtPart.objects.filter(mt_id=mt.pk, part__lte=mt.parts).order_by("id"):
            if own_part.state is not None or own_part.part not in states:
                states[own_part.part] = (own_part.state, own_part.error_code)
        states[part.part] = (report.state, report.error)
        error_codes = [error or 0 for state, error in states.values() if state]
        if not error_codes and any(state is None for state, _ in states.values()):
            return None  # other parts have no Report yet
        before = copy(mt)
        mt.final = SgipMt.Final.FAILED if error_codes else SgipMt.Final.DELIVERED
        mt.error_code = error_codes[0] if error_codes else 0
        mt.error = notifications.ending(str(mt.error_code))[1][:100]
        mt.reported_at = mt.ended_at = at
        failures.take_back_changed([before])
        mt.save(update_fields=["final", "error_code", "error", "reported_at", "ended_at"])
        counters.recount(before, mt, row.archived_at)
        return mt
