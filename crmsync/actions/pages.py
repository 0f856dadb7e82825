"""Which entries and records a bulk action is about, a page at a time.

A page reads a bounded number of rows, however few of them match; its position is the last row that
it looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.utils.translation import gettext as _

from crmsync.messages import policies
from crmsync.messages.lines import RECORD
from crmsync.models import Policy, Record, RecoveryEntry
from crmsync.recovery import entries, resend
from msgplatform.api.filters import number
from msgplatform.core.data import sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Applied
from msgplatform.core.flows.bulk_pages import Page, read_id
from msgplatform.core.flows.messages import Values

# Rows that a page looks at: a step must end within the lease of its job.
SCANNED = 5000
BULK = "bulk"  # as the user who handled an entry; the bulk job's own row says who started it


class OpenEntries:
    """Open entries of the recovery log, by their ids; each gets all its tries again."""

    _change = staticmethod(entries.retry)

    def __init__(self, values: Values, started_at: datetime, by: str = BULK) -> None:
        self._values, self._begun, self._by = values, started_at, by

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(transactions.retrying(partial(self._change, ids, self._by)))

    def page(self, position: str, limit: int) -> Page:
        after = read_id(position)
        if "ids" in self._values:
            remaining_ids = [pk for pk in self._values["ids"] if pk > after]
            named_rows = RecoveryEntry.objects.filter(id__in=remaining_ids[:limit])
            following = str(remaining_ids[limit - 1]) if len(remaining_ids) > limit else ""
            return Page(
                [row[0] for row in self._read(named_rows) if self._matches(*row)], following
            )
        rows = RecoveryEntry.objects.filter(id__gt=after)
        rows = sql.of_one(rows, "state", RecoveryEntry.State.OPEN).order_by("state", "id")
        matches: list[int] = []
        # In the order of the index on (state, id); the rest of the filter is checked here.
        page = self._read(rows)
        for row in page:
            if self._matches(*row):
                matches.append(row[0])
                if len(matches) == limit:
                    return Page(matches, str(row[0]))
        return Page(matches, str(page[-1][0]) if len(page) == SCANNED else "")

    def _read(self, rows: Any) -> list[tuple[Any, ...]]:
        columns = ("id", "state", "crm_id", "policy_id", "error_class", "created_at")
        return list(rows.values_list(*columns)[:SCANNED])

    def _matches(
        self, _id: int, state: int, crm: int, policy: int, error: str, created_at: datetime
    ) -> bool:
        values = self._values
        return (
            state == RecoveryEntry.State.OPEN
            and values.get("crm", crm) == crm
            and values.get("policy", policy) == policy
            and values.get("error_class", error) == error
            and ("since" not in values or values["since"] <= created_at)
            and ("until" not in values or created_at < values["until"])
            # A record that dies again while the job runs is left: the job would go on for ever.
            and created_at <= self._begun
        )


class DismissedEntries(OpenEntries):
    """Open entries of the recovery log; their records are not sent."""

    _change = staticmethod(entries.dismiss)


class Records:
    """Records of a CRM or a policy that are not in flight, policy by policy in the order of their
    keys; times are those of their last change."""

    def __init__(self, values: Values, started_at: datetime, by: str = BULK) -> None:
        if "crm" not in values and "policy" not in values:
            raise InvalidInput(_("choose a CRM or a policy"), "crm")
        self._values, self._begun, self._by = values, started_at, by

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(resend.resend(ids, self._begun, self._by))

    def page(self, position: str, limit: int) -> Page:
        """A position is the policy and the key of the last record."""
        policy_text, _comma, after = position.partition(",")
        matches: list[int] = []
        row_count = 0
        rows = Policy.objects.filter(id__gte=read_id(policy_text))
        if "policy" in self._values:
            rows = rows.filter(id=self._values["policy"])
        if "crm" in self._values:
            rows = rows.filter(crm_id=self._values["crm"])
        for policy in list(rows.order_by("id").values_list("id", flat=True)):
            after = after if str(policy) == policy_text else ""
            for key, record_id in self._read(policy, after):
                row_count += 1
                if record_id:
                    matches.append(record_id)
                if len(matches) == limit or row_count == SCANNED:
                    return Page(matches, f"{policy},{key}")
        return Page(matches, "")

    def _read(self, policy: int, after: str) -> Iterator[tuple[str, int]]:
        """Keys and ids of records; the id is 0 where a record does not match."""
        values = self._values
        rows = sql.of_one(Record.objects.all(), "policy_id", policy).filter(key__gt=after)
        # With a key there is one row for each policy: found by the unique index.
        if "key" in values:
            rows = Record.objects.filter(policy_id=policy, key=values["key"]).filter(key__gt=after)
        columns = ("key", "id", "state", "updated_at")
        page = rows.order_by("policy_id", "key").values_list(*columns)[:SCANNED]
        for key, record_id, state, updated_at in page:
            matches = (
                state not in resend.EXCLUDED_STATES
                and updated_at <= self._begun
                and ("since" not in values or values["since"] <= updated_at)
                and ("until" not in values or updated_at < values["until"])
            )
            yield key, record_id if matches else 0


class ChosenRecords(Records):
    """Records that a person has chosen on the page of a message."""

    def __init__(self, by: str) -> None:
        self._begun, self._by = sql.now(), by


def select_message(id: str, recipient: str, by: str) -> tuple[Records, list[int]]:
    """The newest version of one lead or record: for one CRM, or for all where it is dead. Raises
    InvalidInput when there is no such lead or record, or none yet."""
    records = {record.pk: record for record in _records_of(id)}
    if not records:
        raise InvalidInput(_("nothing was read of it for a CRM yet"), "id")
    if recipient:
        record_id = number(recipient, "recipient")
        if record_id not in records:
            raise InvalidInput(_("there is no such record"), "recipient")
        return ChosenRecords(by), [record_id]
    dead = [pk for pk, record in records.items() if record.state == Record.State.DEAD]
    return ChosenRecords(by), dead


def _records_of(id: str) -> list[Record]:
    """Of a lead at every CRM, or the one that is named."""
    if id.startswith(RECORD):
        return list(Record.objects.filter(id=number(id.removeprefix(RECORD))))
    hive = policies.of_hive(policies.by_id())
    return list(Record.objects.filter(policy_id__in=hive, key=policies.key_of(number(id))))
