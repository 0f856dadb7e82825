"""Reports that found no key in Redis: late ones, looked up in the archive by sequence and number.

A message that had ended as `unknown` gets its real ending and a second event. A Report that nobody
knows is kept for a while (a pump may be about to archive its message), then archived alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from django.db import transaction
from django.utils.translation import gettext_noop as _

from gateway import failures, notifications
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import ReportIn
from gateway.models import SgipMt, SgipMtPart, SgipReport
from gateway.pump import rows as archive
from msgplatform.core import alerts, logging, personal
from msgplatform.core.daemons import bisect
from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.failpoints import failpoint
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import MinuteCounter
from notify.intake import intake

log = logging.get(__name__)

# How often one is looked up again, and for how long (seconds): its message may be in the hands of
# a pump that was killed, until SMS_LEASE_SECONDS (30 by default) are over.
AGAIN_SECONDS = 20.0
PATIENCE_SECONDS = 120.0
_CLOCKS_APART = timedelta(minutes=10)  # at most, of two machines


def settle(most: int) -> int:
    """Look up `most` of them at most; returns how many are settled."""
    entries = store.take(keys.LIST_UNMATCHED, keys.UNMATCHED, most, AGAIN_SECONDS)
    done = bisect.isolate(entries, _settle_some, _set_aside)
    store.drop(keys.UNMATCHED, done)
    return len(done)


def _settle_some(entries: Sequence[str]) -> list[str]:
    """Those that are settled. All may be repeated as a whole: what was written is found again."""
    done = []
    for entry in entries:
        report = msgspec.json.decode(entry, type=ReportIn)
        parts = SgipMtPart.objects.filter(seqno=report.seqno, ts=report.ts, node=report.node)
        part = parts.filter(user_number=report.user_number).order_by("-id").first()
        if part is not None and report.gateways:
            mine = SgipMt.objects.filter(pk=part.mt_id, gateway_id__in=report.gateways)
            part = part if mine.exists() else None  # its gateway may not report on this message
        if part is None and time.time() - report.at < PATIENCE_SECONDS:
            continue  # once more when its lease is over
        failpoint("pump_unmatched_before_write")
        mt = transactions.retrying(partial(_write, report, part, ids.reserve(1)))
        if mt is not None:
            failpoint("pump_unmatched_before_publish")
            intake.publish_many([notifications.late_report(mt)])
        done.append(entry)
    return done


def _set_aside(entry: str, error: Exception) -> alerts.AlertEvent:
    """It keeps its lease, and comes again when that is over."""
    return alerts.AlertEvent(
        "sms.archive",
        lazy_message(_("A Report that found no message cannot be settled")),
        personal.in_sentence(f"{entry[:500]}: {type(error).__name__}: {error}"[:1000]),
        key="sms.archive:report",
    )


def _write(report: ReportIn, part: SgipMtPart | None, block: ids.Block) -> SgipMt | None:
    """Write it down. Returns the message if this is what ended it: its event is to be published.

    The message is locked, so that of two pumps with two Reports the second sees what the first
    wrote. A Report that was written down already, by a pump that was killed, gives the same.
    """
    at = datetime.fromtimestamp(report.at, UTC)
    (row_id,) = block.ids([0])
    row = SgipReport(
        id=row_id, mt_id=part.mt_id if part else 0, part=part.part if part else 0,
        node=report.node, ts=report.ts, seqno=report.seqno, user_number=report.user_number,
        state=report.state, error_code=report.error, received_at=at,
    )  # fmt: skip
    with transaction.atomic(durable=True):
        mt = SgipMt.objects.select_for_update().filter(pk=row.mt_id).first()
        if _written(row):
            is_its = mt and mt.final != SgipMt.Final.UNKNOWN and mt.reported_at == at
            return mt if is_its else None
        row.archived_at = sql.now()
        row.save(force_insert=True)
        if part is None:
            log.warning("report_unmatched", sequence=f"{report.node}:{report.ts}:{report.seqno}")
            return None
        SgipMtPart.objects.filter(pk=part.pk, state=None).update(
            state=report.state, error_code=report.error, reported_at=at
        )
        if mt is None:
            return None  # the retention has deleted it
        before = copy(mt)
        if not _ends(mt, report, part):
            return None  # other parts are still open
        failures.turned_out_otherwise([before])
        mt.save(update_fields=["final", "error_code", "error", "reported_at", "ended_at"])
        # In the statistics of the time at which it was archived as unknown.
        subject = mt.biz_id, mt.account_id, mt.gateway_id
        counts = Counter(archive.ending(*subject, mt.final, str(mt.error_code)))
        counts.subtract(archive.ending(*subject, SgipMt.Final.UNKNOWN, ""))
        MinuteCounter.correct(failures.FLOW, counts, mt.archived_at, row.archived_at)
        return mt


def _ends(mt: SgipMt, report: ReportIn, part: SgipMtPart) -> bool:
    """Give the message its real ending, if it was unknown and all its parts are known now."""
    if mt.final != SgipMt.Final.UNKNOWN:
        return False
    # A part may have been sent several times: what a Report said of one of them counts.
    states: dict[int, tuple[int | None, int | None]] = {}
    for row in SgipMtPart.objects.filter(mt_id=mt.pk, part__lte=mt.parts).order_by("id"):
        if row.state is not None or row.part not in states:
            states[row.part] = (row.state, row.error_code)
    states[part.part] = (report.state, report.error)
    failed = [error or 0 for state, error in states.values() if state]
    if not failed and any(state is None for state, _ in states.values()):
        return False
    mt.final = SgipMt.Final.FAILED if failed else SgipMt.Final.DELIVERED
    mt.error_code = failed[0] if failed else 0
    mt.error = notifications.ending(str(mt.error_code))[1][:100]
    mt.reported_at = mt.ended_at = datetime.fromtimestamp(report.at, UTC)
    return True


def _written(row: SgipReport) -> bool:
    """Whether a pump that was killed before it dropped the Report wrote it. A row's id is younger
    than its Report, so that the key bounds the search for Reports without a message too."""
    oldest = max(0, ids.first_id_at(row.received_at - _CLOCKS_APART))
    same = {
        name: getattr(row, name)
        for name in ("mt_id", "node", "ts", "seqno", "user_number", "state", "received_at")
    }
    return SgipReport.objects.filter(id__gte=oldest, **same).exists()
