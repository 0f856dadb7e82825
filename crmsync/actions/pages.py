"""The entries and records of a bulk action, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

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
from msgplatform.core.flows.messages import Source, Values, named, ordered
from msgplatform.messages.bulk import Row, select_in_places
from msgplatform.messages.engine import select_ids

BULK = "bulk"  # as the user who handled an entry; the bulk job's own row says who started it


_ENTRIES = Source(
    rows=RecoveryEntry.objects.all,
    indexes=[
        named(("ids",), lambda values: values["ids"]),
        ordered("crm", "state"),
        ordered("state"),
    ],
    conditions={
        "state": "state",
        "crm": "crm_id",
        "policy": "policy_id",
        "error_class": "error_class",
        "entered_since": "created_at__gte",
        "entered_until": "created_at__lt",
        "begun": "created_at__lte",
    },
)


class OpenEntries:
    """Open entries of the recovery log, by their ids; each gets all its tries again."""

    _change = staticmethod(entries.retry)

    def __init__(self, values: Values, started_at: datetime, by: str = BULK) -> None:
        # Ids of entries say nothing about their times: these are conditions.
        names = {"since": "entered_since", "until": "entered_until"}
        entered = {names.get(name, name): value for name, value in values.items()}
        # A record that dies again while the job runs is left: the job would go on for ever.
        self._values = {**entered, "state": RecoveryEntry.State.OPEN, "begun": started_at}
        self._by = by

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(transactions.retrying(partial(self._change, ids, self._by)))

    def page(self, position: str, limit: int) -> Page:
        return select_ids([_ENTRIES], self._values, position, limit)


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
        rows = Policy.objects.filter(id__gte=read_id(position.partition(",")[0]))
        if "policy" in self._values:
            rows = rows.filter(id=self._values["policy"])
        if "crm" in self._values:
            rows = rows.filter(crm_id=self._values["crm"])
        policy_ids = list(rows.values_list("id", flat=True))
        return select_in_places(policy_ids, self._read, position, limit)

    def _read(self, policy: int, after: str, size: int) -> list[Row]:
        values = self._values
        rows = sql.of_one(Record.objects.all(), "policy_id", policy).filter(key__gt=after)
        # With a key there is one row for each policy: found by the unique index.
        if "key" in values:
            rows = Record.objects.filter(policy_id=policy, key=values["key"]).filter(key__gt=after)
        columns = ("key", "id", "state", "updated_at")
        page = rows.order_by("policy_id", "key").values_list(*columns)[:size]
        return [
            Row(
                record_id,
                key,
                state not in resend.EXCLUDED_STATES
                and updated_at <= self._begun
                and ("since" not in values or values["since"] <= updated_at)
                and ("until" not in values or updated_at < values["until"]),
            )
            for key, record_id, state, updated_at in page
        ]


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
