"""Decide on the rows of a round, and write the decisions.

The effect of a version on its record (the states are in `models/operations.py`):

    older, or the same version and values      nothing
    dismissed or dead in this version          nothing
    the CRM holds these values already         confirmed, no call
    not confirmed yet, and the same values     stays as it is, in this version
    in flight with an older version            stays queued; this one is sent when that has ended
    refused by the mapping                     dead, with an entry of the recovery log
    a removal: it deletes, or clears a field   held, until the guard lets it go
    anything else                              queued with this round
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import msgspec
from django.conf import settings

from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.models.operations import MAPPING, MAX_MESSAGE, UNKNOWN
from crmsync.monitor import counters, failures
from crmsync.operations import add_endings
from crmsync.orders import Entry, Request, dump
from crmsync.poller.reading.increment import Watermark
from crmsync.poller.requests import RowRequest
from msgplatform.core.data import sql

_State, _Removal = Record.State, Record.Removal
# The columns of a record in their stored order.
COLUMNS = (
    "id", "policy_id", "key", "version", "deleted", "operation_id", "sending_operation", "digest",
    "state", "attempt", "next_at", "claimed_by", "sent_version", "sent_digest", "remote_id",
    "error_class", "updated_at", "removal", "cleared", "room",
)  # fmt: skip
_values = itemgetter(*COLUMNS)
# The columns that differ in new records, and in confirmed ones that are sent anew.
_NEW = ("id", "key", "version", "digest", "cleared")
_CHANGED = ("id", "version", "digest", "cleared")


class Round(msgspec.Struct):
    """The rows that one round stores. `operation` is the id of an operation, if the round needs
    one. With `are_new` no row is expected to have a record."""

    policy: Policy
    holder: str
    crm_id: int
    operation: int
    run: int
    row_requests: Sequence[RowRequest]
    watermark: Watermark | None
    are_new: bool = False
    claim: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)


class StoredRound(msgspec.Struct):
    """A round after it was stored: the entries to queue, which carry its claim until `lease_until`.

    `requests` are those of the operation, which is None when there was nothing to send; `size` is
    its number of bytes. Removals that are held have an operation of their own, because an operation
    whose records are all sent at once needs no items. `read` counts the rows that were decided on,
    `held` those of removals. `are_new`: no row had a record.
    """

    entries: list[Entry] = msgspec.field(default_factory=list)
    requests: list[Request] = msgspec.field(default_factory=list)
    operation: Operation | None = None
    held_requests: list[Request] = msgspec.field(default_factory=list)
    held_operation: Operation | None = None
    lease_until: float = 0.0
    read: int = 0
    unchanged: int = 0
    held: int = 0
    size: int = 0
    are_new: bool = False

    @property
    def operations(self) -> list[Operation]:
        both = (self.operation, self.held_operation)
        return [operation for operation in both if operation]


class Decisions:
    """The decisions of a round on each record, and the rows that store them."""

    def __init__(self, poll_round: Round, now: datetime, held_operation: int) -> None:
        """`held_operation` is the id of the operation of removals that are held."""
        self._round, self._now, self._held_operation = poll_round, now, held_operation
        self._has_versions = bool(poll_round.policy.source.version_column)
        self._lease = now + timedelta(seconds=settings.CRM_LEASE_SECONDS)
        # Convert these two times once: hundreds of rows have them.
        self._now_stored, self._lease_stored = sql.stored(now), sql.stored(self._lease)
        self._rows: list[tuple[Any, ...]] = []
        self._new_ids: set[int] = set()  # ids in `_rows` of new records
        self._new_rows: list[tuple[Any, ...]] = []  # the columns _NEW; the other columns are equal
        self._changed_rows: list[tuple[Any, ...]] = []  # the columns _CHANGED
        self._endings: Counter[tuple[int, str]] = Counter()
        self._counts: counters.Counts = Counter()
        self._dead: list[tuple[dict[str, Any], RowRequest]] = []
        self._restored_ids: list[int] = []  # records whose removal was held, as the CRM has them
        self.result = StoredRound(lease_until=self._lease.timestamp())

    def take(
        self, row_request: RowRequest, stored_row: Mapping[str, Any] | None, new_id: int
    ) -> None:
        """Decide on a record; `stored_row` is its row, `new_id` the id for a new one."""
        self.result.read += 1
        if stored_row is None:
            self._take_new(row_request, new_id)
            return
        row_request = self._with_greater_version(row_request, stored_row)
        request, version = row_request.request, row_request.request.version
        state, operation = stored_row["state"], stored_row["operation_id"]
        is_known = version == stored_row["version"] and row_request.digest == stored_row["digest"]
        if version < stored_row["version"] or is_known or self._is_settled(row_request, stored_row):
            return
        if self._is_plain_change(row_request, stored_row):
            request = msgspec.structs.replace(request, previous=operation)
            row_id, remote_id = stored_row["id"], stored_row["remote_id"]
            self._changed_rows.append((row_id, version, row_request.digest, row_request.cleared))
            self.result.entries.append(Entry(row_id, self._round.operation, request, remote_id))
            self.result.requests.append(request)
            return
        row = {
            **stored_row,
            "version": version,
            "digest": row_request.digest,
            "deleted": request.deleted,
            "updated_at": self._now_stored,
        }
        is_in_flight = state == _State.QUEUED and stored_row["next_at"] > self._now
        sending_operation = stored_row["sending_operation"]
        if state == _State.CONFIRMED and row_request.digest == stored_row["sent_digest"]:
            row["sent_version"] = version
            self._keep(row)
            return
        # The row is at its source again as the CRM still has it: nothing was sent of the removal.
        is_certain = state == _State.HELD and stored_row["error_class"] != UNKNOWN
        is_sendable = row_request.problem is None
        if is_certain and is_sendable and row_request.digest == stored_row["sent_digest"]:
            self._endings[operation, "replaced"] += 1
            # The held operation has the removal. A resend needs the values of the row.
            self._endings[self._round.operation, "confirmed"] += 1
            self.result.requests.append(msgspec.structs.replace(request, previous=operation))
            row |= {
                "state": int(_State.CONFIRMED), "next_at": None, "sent_version": version,
                "removal": int(_Removal.NONE), "cleared": row_request.cleared,
                "operation_id": self._round.operation,
            }  # fmt: skip
            self._keep(row)
            self._restored_ids.append(row["id"])
            return
        # Send the stored request in this version: a person may have corrected the request.
        if state in Record.OPEN and row_request.digest == stored_row["digest"]:
            self._keep(row)
            return
        row |= self._removal_columns(row_request, stored_row)
        # The handler in charge finds the newer version when it marks. A row that the mapping
        # refused has nothing to send later: it is dead now.
        if is_in_flight and not row_request.problem:
            if sending_operation != operation:  # a version in between was never sent
                self._endings[operation, "replaced"] += 1
            row["operation_id"] = self._round.operation
            self._rows.append(_values(row))
            request = msgspec.structs.replace(request, previous=operation)
            self.result.requests.append(request)
            return
        if state in Record.OPEN:
            for open_operation in {operation, sending_operation} - {0}:
                self._endings[open_operation, "replaced"] += 1
        check = stored_row["error_class"] == UNKNOWN or state == _State.QUEUED
        self._send(row, row_request, check)

    def _with_greater_version(
        self, row_request: RowRequest, stored_row: Mapping[str, Any]
    ) -> RowRequest:
        """Give a changed row a greater version if the source has no versions, whatever clock the
        earlier poller had: only one poller at a time reads a policy."""
        if self._has_versions or row_request.digest == stored_row["digest"]:
            return row_request
        version = max(row_request.request.version, stored_row["version"] + 1)
        request = msgspec.structs.replace(row_request.request, version=version)
        return msgspec.structs.replace(row_request, request=request)

    def _is_plain_change(self, row_request: RowRequest, stored_row: Mapping[str, Any]) -> bool:
        """True if the CRM has confirmed the version before, and the new one only sets fields: such
        rows are nearly all of a round."""
        return (
            stored_row["state"] == _State.CONFIRMED
            and row_request.digest != stored_row["sent_digest"]
            and row_request.cleared <= stored_row["cleared"]
            and stored_row["error_class"] != UNKNOWN
            and not (row_request.problem or row_request.request.deleted)
        )

    def _removal_columns(
        self, row_request: RowRequest, stored_row: Mapping[str, Any]
    ) -> dict[str, int]:
        """The columns that say whether a new version removes something from the CRM. A removal that
        was not confirmed yet stays one, with what was decided about it."""
        if row_request.problem:
            return {}
        is_deletion = row_request.request.deleted
        count = stored_row["cleared"] if is_deletion else row_request.cleared
        is_more = is_deletion > bool(stored_row["deleted"]) or count > stored_row["cleared"]
        is_unsent = stored_row["state"] != _State.CONFIRMED and bool(stored_row["removal"])
        removal = _Removal.NONE
        if is_more:
            removal = _Removal.PENDING
        elif is_unsent and (is_deletion or count):
            removal = stored_row["removal"]
        return {"removal": int(removal), "cleared": count}

    def _is_settled(self, row_request: RowRequest, stored_row: Mapping[str, Any]) -> bool:
        """True if the version will not be sent: a person dismissed it, or a source without versions
        has an unchanged row, so that reading it again is no newer version."""
        if self._has_versions:
            is_same = row_request.request.version == stored_row["version"]
            return is_same and bool(stored_row["state"] == _State.DISMISSED)
        is_confirmed = stored_row["state"] == _State.CONFIRMED
        return not is_confirmed and bool(row_request.digest == stored_row["digest"])

    def _take_new(self, row_request: RowRequest, new_id: int) -> None:
        request = row_request.request
        if not row_request.problem and not request.deleted:
            request = msgspec.structs.replace(request, previous=0)
            digest, cleared = row_request.digest, row_request.cleared
            self._new_rows.append((new_id, row_request.key, request.version, digest, cleared))
            self.result.entries.append(Entry(new_id, self._round.operation, request))
            self.result.requests.append(request)
            return
        self._new_ids.add(new_id)
        row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
        row |= {
            "id": new_id, "policy_id": self._round.policy.id, "key": row_request.key,
            "version": request.version, "digest": row_request.digest, "deleted": request.deleted,
            "sent_version": 0, "updated_at": self._now_stored,
            "removal": int(_Removal.NONE), "cleared": 0,
        }  # fmt: skip
        if request.deleted:  # the CRM never had the record
            row |= {
                "operation_id": 0, "sending_operation": 0, "state": int(_State.CONFIRMED),
                "attempt": 0, "next_at": None, "sent_version": request.version,
                "sent_digest": row_request.digest,
            }  # fmt: skip
            self._keep(row)
            return
        self._send(row, row_request, check=False)

    def _keep(self, row: dict[str, Any]) -> None:
        """Store a version whose values the CRM has, or will get by another call."""
        self._rows.append(_values(row))
        self.result.unchanged += 1

    def _send(self, row: dict[str, Any], row_request: RowRequest, check: bool) -> None:
        """Queue the record with this round, unless the mapping refused it."""
        poll_round = self._round
        request = msgspec.structs.replace(row_request.request, previous=row["operation_id"] or 0)
        requests = self.result.requests
        row |= {"operation_id": poll_round.operation, "attempt": 0}
        if row_request.problem:
            row |= {
                "state": int(_State.DEAD), "next_at": None, "claimed_by": "",
                "sending_operation": 0, "error_class": UNKNOWN if check else MAPPING,
            }  # fmt: skip
            self._endings[poll_round.operation, "dead"] += 1
            self._dead.append((row, row_request))
        elif row["removal"] == _Removal.PENDING:
            row |= {
                "state": int(_State.HELD), "next_at": self._now_stored, "claimed_by": "",
                "sending_operation": 0, "error_class": UNKNOWN if check else "",
                "operation_id": self._held_operation,
            }  # fmt: skip
            requests = self.result.held_requests
            self.result.held += 1
        else:
            row |= {
                "state": int(_State.QUEUED), "next_at": self._lease_stored,
                "claimed_by": poll_round.claim, "sending_operation": poll_round.operation,
                "error_class": UNKNOWN if check else "", "room": "",
            }  # fmt: skip
            self.result.entries.append(
                Entry(row["id"], poll_round.operation, request, row["remote_id"], check=check)
            )
        self._rows.append(_values(row))
        requests.append(request)

    def write(self) -> None:
        poll_round, result, table = self._round, self.result, Record._meta.db_table
        # Handlers also lock records in the order of ids: no deadlock.
        rows = sorted(self._rows, key=itemgetter(0))
        # If a new row has a record all the same, raise an error: that record must not change.
        sql.insert(table, COLUMNS, [row for row in rows if row[0] in self._new_ids])
        sql.insert_or_update(table, COLUMNS, [row for row in rows if row[0] not in self._new_ids])
        # Most columns are equal in records that are sent for the first time, or anew.
        constants = {
            "deleted": False, "operation_id": poll_round.operation,
            "sending_operation": poll_round.operation, "state": int(_State.QUEUED), "attempt": 0,
            "next_at": self._lease_stored, "claimed_by": poll_round.claim, "error_class": "",
            "updated_at": self._now_stored, "removal": int(_Removal.NONE), "room": "",
        }  # fmt: skip
        sql.update(table, _CHANGED, sorted(self._changed_rows), constants)
        constants |= {
            "policy_id": poll_round.policy.id, "sent_version": 0, "sent_digest": "",
            "remote_id": "", "room": Record.FIRST_ROOM,
        }  # fmt: skip
        sql.insert(table, _NEW, self._new_rows, constants=constants)
        result.operation = self._create_operation(poll_round.operation, result.requests)
        result.held_operation = self._create_operation(self._held_operation, result.held_requests)
        result.size = len(result.operation.data) if result.operation else 0
        if self._endings:
            add_endings(self._endings, self._now)
        if self._dead:
            entries = [
                RecoveryEntry(
                    policy_id=poll_round.policy.id, operation_id=poll_round.operation,
                    record_id=row["id"], key=row["key"], version=row["version"],
                    error_class=MAPPING, reason=str(row_request.problem)[:MAX_MESSAGE],
                    field=row_request.problem.field if row_request.problem else "",
                    request=msgspec.json.encode(row_request.request),
                )
                for row, row_request in self._dead
            ]  # fmt: skip
            failures.open_entries(poll_round.crm_id, entries, self._now)
        failures.solve_entries(self._restored_ids, self._round.crm_id, self._now)
        names = {
            counters.READ: result.read,
            counters.UNCHANGED: result.unchanged,
            counters.DEAD: len(self._dead),
        }
        self._counts.update({(poll_round.policy.id, name): n for name, n in names.items() if n})
        counters.add(self._counts, self._now)

    def _create_operation(self, pk: int, requests: list[Request]) -> Operation | None:
        if not requests:
            return None
        return Operation.objects.create(
            id=pk, data=dump(requests), policy_id=self._round.policy.id,
            start_at=int(self._now.timestamp() * 1000), run_id=self._round.run,
            records=len(requests),
        )  # fmt: skip
