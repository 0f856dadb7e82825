"""Which entries and records a bulk action is about, a page at a time.

A page reads a bounded number of rows, however few of them match; its position is the last row that
it looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from crmsync.actions.filters import Filter
from crmsync.models import Policy, Record, RecoveryEntry
from crmsync.recovery import resend
from msgplatform.core.bulk.cursor import Page, read_id
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput

# Rows that a page looks at: a step must end within the lease of its job.
SCANNED = 5000


class OpenEntries:
    """Open entries of the recovery log, in the order of their ids."""

    def __init__(self, filter: Filter, begun: datetime) -> None:
        self._filter, self._begun = filter, begun

    def page(self, position: str, limit: int) -> Page:
        after = read_id(position)
        if self._filter.ids is not None:
            left = [pk for pk in self._filter.ids if pk > after]
            found = RecoveryEntry.objects.filter(id__in=left[:limit])
            following = str(left[limit - 1]) if len(left) > limit else ""
            return Page([row[0] for row in self._read(found) if self._matches(*row)], following)
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
        asked = self._filter
        return (
            state == RecoveryEntry.State.OPEN
            and asked.crm in (None, crm)
            and asked.policy in (None, policy)
            and asked.error_class in (None, error)
            and (asked.since is None or asked.since <= created_at)
            and (asked.until is None or created_at < asked.until)
            # A record that dies again while the job runs is left: the job would go on for ever.
            and created_at <= self._begun
        )


class Records:
    """Records of a CRM or a policy that are not in flight, policy by policy in the order of their
    keys; times are those of their last change."""

    def __init__(self, filter: Filter, begun: datetime) -> None:
        if filter.crm is None and filter.policy is None:
            raise InvalidInput(_("choose a CRM or a policy"), "crm")
        self._filter, self._begun = filter, begun

    def page(self, position: str, limit: int) -> Page:
        """A position is the policy and the key of the last record."""
        policy_text, _comma, after = position.partition(",")
        matches: list[int] = []
        scanned = 0
        rows = Policy.objects.filter(id__gte=read_id(policy_text))
        if self._filter.policy is not None:
            rows = rows.filter(id=self._filter.policy)
        if self._filter.crm is not None:
            rows = rows.filter(crm_id=self._filter.crm)
        for policy in list(rows.order_by("id").values_list("id", flat=True)):
            after = after if str(policy) == policy_text else ""
            for key, record_id in self._read(policy, after):
                scanned += 1
                if record_id:
                    matches.append(record_id)
                if len(matches) == limit or scanned == SCANNED:
                    return Page(matches, f"{policy},{key}")
        return Page(matches, "")

    def _read(self, policy: int, after: str) -> Iterator[tuple[str, int]]:
        """Keys and ids of records; the id is 0 where a record does not match."""
        asked = self._filter
        rows = sql.of_one(Record.objects.all(), "policy_id", policy).filter(key__gt=after)
        # With a key there is one row for each policy: found by the unique index.
        if asked.key is not None:
            rows = Record.objects.filter(policy_id=policy, key=asked.key).filter(key__gt=after)
        columns = ("key", "id", "state", "updated_at")
        page = rows.order_by("policy_id", "key").values_list(*columns)[:SCANNED]
        for key, record_id, state, updated_at in page:
            matches = (
                state not in resend.LEFT
                and updated_at <= self._begun
                and (asked.since is None or asked.since <= updated_at)
                and (asked.until is None or updated_at < asked.until)
            )
            yield key, record_id if matches else 0
