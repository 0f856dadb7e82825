"""Store what a round has read: records, the operation and the watermark, in one transaction.

What a version that was read does to its record (the states are in `models/operations.py`):

    older, or the same version and values      nothing
    dismissed or dead in this version          nothing
    the CRM holds these values already         confirmed, no call
    in flight with an older version            stays queued; this one is sent when that has ended
    refused by the mapping                     dead, with an entry of the recovery log
    anything else                              queued with this round
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F

from crmsync import models
from crmsync.directory import Policy
from crmsync.models.operations import MAX_MESSAGE, UNKNOWN
from crmsync.monitor import counters, failures
from crmsync.operations import endings
from crmsync.orders import Entry, Request, dump
from crmsync.poller.reading.increment import Watermark
from crmsync.poller.requests import Wanted, unstorable
from msgplatform.core import logging
from msgplatform.core.data import claims, ids, sql, transactions
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import UNAVAILABLE, LeaseLost

log = logging.get(__name__)

_State = models.Record.State
# The columns of a record as it is stored, in this order.
COLUMNS = (
    "id", "policy_id", "key", "version", "deleted", "operation_id", "sending_operation", "digest",
    "state", "attempt", "next_at", "claimed_by", "sent_version", "sent_digest", "remote_id",
    "error_class", "updated_at",
)  # fmt: skip
_values = itemgetter(*COLUMNS)
MAPPING = "mapping"  # the error class of a row of which the mapping cannot make a request


class Unstorable(Exception):
    """The database refuses one of several rows: they are to be stored in smaller parts."""


@dataclass(slots=True)
class Round:
    """What one round stores. `operation` is its id, used only when there is something to send."""

    policy: Policy
    holder: str
    crm_id: int
    operation: int
    run: int
    wanted: Sequence[Wanted]
    watermark: Watermark | None
    claim: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True)
class Stored:
    """What became of a round: the entries to queue, which carry its claim until `lease_until`.

    `requests` are those of the operation, which is None when there was nothing to send.
    """

    entries: list[Entry] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    operation: models.Operation | None = None
    lease_until: float = 0.0
    unchanged: int = 0


def store(this: Round) -> Stored:
    """Store the round. Raises LeaseLost when another poller holds the policy; then nothing is
    stored."""
    # Ids come before the transaction, which may be repeated: most of them are not used.
    buckets = [ids.bucket(this.policy.id, each.key) for each in this.wanted]
    new_ids = ids.reserve(max(1, len(buckets))).ids(buckets)
    return transactions.retrying(lambda: _store_once(this, new_ids))


def store_or_set_aside(this: Round) -> Stored:
    """As `store`; a row that the database refuses alone is dead with the reason.

    Raises Unstorable for several rows of which the database refuses one.
    """
    try:
        return store(this)
    except (*UNAVAILABLE, LeaseLost):
        raise
    except Exception as error:
        if len(this.wanted) != 1:
            raise Unstorable from error
        log.exception("row_not_stored", policy=this.policy.name)
        return store(replace(this, wanted=[unstorable(this.wanted[0], error)]))


def _store_once(this: Round, new_ids: Sequence[int]) -> Stored:
    with transaction.atomic():
        # The policy's row is the fence: whoever lost its lease, however slowly it goes on, finds
        # another token here, and stores nothing.
        rows = models.Policy.objects.select_for_update().filter(pk=this.policy.id)
        now = sql.now()
        holder, until = rows.values_list("claimed_by", "lease_until").first() or ("", None)
        if holder != this.holder or until is None or until <= now:
            raise LeaseLost(f"the policy {this.policy.name} is held by another poller")
        known = {}
        for some in chunks([each.key for each in this.wanted], claims.CHUNK):
            records = models.Record.objects.filter(policy_id=this.policy.id, key__in=some)
            # Locked, because a handler may be marking them.
            for row in records.select_for_update().order_by().values(*COLUMNS):
                known[row["key"]] = row
        decided = _Decisions(this, now)
        for each, new_id in zip(this.wanted, new_ids, strict=True):
            decided.take(each, known.get(each.key), new_id)
        decided.write()
        if this.watermark:
            _move_watermark(this.policy.id, this.watermark, now)
        if this.run:
            models.Run.objects.filter(pk=this.run).update(
                read=F("read") + len(this.wanted), unchanged=F("unchanged") + decided.made.unchanged
            )
    return decided.made


def _move_watermark(policy_id: int, watermark: Watermark, now: datetime) -> None:
    # The key is JSON: a number and the same digits as text are different keys.
    key = msgspec.json.encode(watermark.key).decode()
    sql.insert_or_update(
        models.Watermark._meta.db_table,
        ("policy_id", "update_time", "key", "moved_at"),
        [(policy_id, watermark.time, key, now)],
        key="policy_id",
    )


class _Decisions:
    """What becomes of each record, and the rows that say so."""

    def __init__(self, this: Round, now: datetime) -> None:
        self._this, self._now = this, now
        self._has_versions = bool(this.policy.source.version_column)
        self._lease = now + timedelta(seconds=settings.CRM_LEASE_SECONDS)
        # Hundreds of rows have the same two times: they are converted once.
        self._now_stored, self._lease_stored = sql.stored(now), sql.stored(self._lease)
        self._rows: list[tuple[Any, ...]] = []
        self._ended: Counter[tuple[int, str]] = Counter()
        self._counts: counters.Counts = Counter()
        self._refused: list[tuple[dict[str, Any], Wanted]] = []
        self.made = Stored(lease_until=self._lease.timestamp())

    def take(self, each: Wanted, known: Mapping[str, Any] | None, new_id: int) -> None:
        """Decide what becomes of a record; `known` is its row, `new_id` is for one without."""
        if known is None:
            self._new(each, new_id)
            return
        each = self._numbered(each, known)
        version = each.request.version
        is_known = version == known["version"] and each.digest == known["digest"]
        if version < known["version"] or is_known or self._is_settled(each, known):
            return
        row = {**known, "version": version, "digest": each.digest, "deleted": each.request.deleted}
        row["updated_at"] = self._now_stored
        held = known["state"] == _State.QUEUED and known["next_at"] > self._now
        sending, operation = known["sending_operation"], known["operation_id"]
        if known["state"] == _State.CONFIRMED and each.digest == known["sent_digest"]:
            row["sent_version"] = version
            self._keep(row)
            return
        # The handler that has it finds the newer version when it marks. Not one that the mapping
        # refused: there is nothing to send later, so that it is dead now.
        if held and not each.problem:
            if sending != operation:  # a version in between was never sent
                self._ended[operation, "replaced"] += 1
            row["operation_id"] = self._this.operation
            self._rows.append(_values(row))
            self.made.requests.append(each.request)
            return
        if known["state"] in models.Record.OPEN:
            for each_operation in {operation, sending} - {0}:
                self._ended[each_operation, "replaced"] += 1
        check = known["error_class"] == UNKNOWN or known["state"] == _State.QUEUED
        self._send(row, each, check)

    def _numbered(self, each: Wanted, known: Mapping[str, Any]) -> Wanted:
        """Where the source has no versions, a row that differs is newer, whatever the clock of the
        poller showed that read it before: only one poller at a time reads a policy."""
        if self._has_versions or each.digest == known["digest"]:
            return each
        version = max(each.request.version, known["version"] + 1)
        return replace(each, request=msgspec.structs.replace(each.request, version=version))

    def _is_settled(self, each: Wanted, known: Mapping[str, Any]) -> bool:
        """True if the version was given up: by a person, or by the CRM where reading it once more
        does not make it a newer one."""
        if self._has_versions:
            is_same = each.request.version == known["version"]
            return is_same and bool(known["state"] == _State.DISMISSED)
        is_ended = known["state"] in (_State.DISMISSED, _State.DEAD)
        return is_ended and bool(each.digest == known["digest"])

    def _new(self, each: Wanted, new_id: int) -> None:
        row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
        row |= {
            "id": new_id, "policy_id": self._this.policy.id, "key": each.key,
            "version": each.request.version, "digest": each.digest,
            "deleted": each.request.deleted, "sent_version": 0, "updated_at": self._now_stored,
        }  # fmt: skip
        if each.request.deleted:  # the CRM never heard of it: there is nothing to delete
            row |= {
                "operation_id": 0, "sending_operation": 0, "state": int(_State.CONFIRMED),
                "attempt": 0, "next_at": None, "sent_version": each.request.version,
                "sent_digest": each.digest,
            }  # fmt: skip
            self._keep(row)
            return
        self._send(row, each, check=False)

    def _keep(self, row: dict[str, Any]) -> None:
        """The CRM has what this version says: no call."""
        self._rows.append(_values(row))
        self.made.unchanged += 1

    def _send(self, row: dict[str, Any], each: Wanted, check: bool) -> None:
        """The record is queued with this round, unless the mapping refused it."""
        this = self._this
        row |= {"operation_id": this.operation, "attempt": 0}
        if each.problem:
            row |= {
                "state": int(_State.DEAD), "next_at": None, "claimed_by": "",
                "sending_operation": 0, "error_class": MAPPING,
            }  # fmt: skip
            self._ended[this.operation, "dead"] += 1
            self._refused.append((row, each))
        else:
            row |= {
                "state": int(_State.QUEUED), "next_at": self._lease_stored,
                "claimed_by": this.claim, "sending_operation": this.operation,
                "error_class": UNKNOWN if check else "",
            }  # fmt: skip
            self.made.entries.append(
                Entry(row["id"], this.operation, each.request, row["remote_id"], check=check)
            )
        self._rows.append(_values(row))
        self.made.requests.append(each.request)

    def write(self) -> None:
        this, made, table = self._this, self.made, models.Record._meta.db_table
        # In the order of ids, in which handlers lock them too: so nobody waits in a circle.
        sql.insert_or_update(table, COLUMNS, sorted(self._rows, key=itemgetter(0)))
        if made.requests:
            made.operation = models.Operation.objects.create(
                id=this.operation, data=dump(made.requests), policy_id=this.policy.id,
                start_at=int(self._now.timestamp() * 1000), run_id=this.run,
                records=len(made.requests),
            )  # fmt: skip
        if self._ended:
            endings.add(self._ended, self._now)
        if self._refused:
            self._report_refused()
        names = {
            counters.READ: len(this.wanted),
            counters.UNCHANGED: made.unchanged,
            counters.DEAD: len(self._refused),
        }
        self._counts.update({(this.policy.id, name): n for name, n in names.items() if n})
        counters.add(self._counts, self._now)

    def _report_refused(self) -> None:
        """At most one entry of the recovery log is open for a record."""
        entries = models.RecoveryEntry.objects.filter(
            record_id__in=[row["id"] for row, _ in self._refused],
            state=models.RecoveryEntry.State.OPEN,
        )
        failures.take_back(entries)
        entries.delete()
        models.RecoveryEntry.objects.bulk_create(
            models.RecoveryEntry(
                policy_id=self._this.policy.id, crm_id=self._this.crm_id,
                operation_id=self._this.operation, record_id=row["id"], key=row["key"],
                version=row["version"], error_class=MAPPING,
                field=each.problem.field if each.problem else "",
                reason=str(each.problem)[:MAX_MESSAGE], created_at=self._now,
                request=msgspec.json.encode(each.request),
            )
            for row, each in self._refused
        )  # fmt: skip
        lost = [(row["id"], MAPPING, str(each.problem)) for row, each in self._refused]
        failures.add(self._this.crm_id, lost, self._now)
