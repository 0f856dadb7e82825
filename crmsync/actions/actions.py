"""CRM sync's bulk actions: their entries or records, the effect on these, and the result of each
resent record."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.utils.translation import gettext, gettext_lazy as _
from msgspec.structs import replace

from crmsync.messages import lines as message_lines, policies
from crmsync.messages.fields import CRM, ERROR_CLASS, POLICY
from crmsync.messages.lines import RECORD
from crmsync.models import Record, RecoveryEntry
from crmsync.recovery import entries
from msgplatform.core.data import ids as id_numbers, sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import Applied, BulkAction, Ending
from msgplatform.core.flows.bulk_pages import Described, Page, Preview, Tally
from msgplatform.core.flows.messages import FilterField, Source, Values, named, ordered
from msgplatform.core.flows.page import Hit
from msgplatform.core.flows.text import Text
from msgplatform.messages import filters
from msgplatform.messages.bulk import Row, Selected, bulk_action, select_in_places

_BULK = "bulk"  # user of handled entries; the bulk job's own row says who started it
_State = Record.State
_ENDINGS: Mapping[int, Ending] = {
    _State.CONFIRMED: "arrived", _State.DEAD: "failed", _State.DISMISSED: "failed",
}  # fmt: skip
# A policy's id, and the error class of an entry or the state of a record.
Kind = tuple[int, str]


# -- which entries and records -------------------------------------------------------------------
_ENTRY_SOURCE = Source(
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


def select_entries(
    values: Values, started_at: datetime, change: Callable[[Sequence[int], str], int]
) -> Selected:
    """Open entries of the recovery log."""
    # Ids of entries do not follow their times, so that times are conditions.
    names = {"since": "entered_since", "until": "entered_until"}
    entry_filter = {names.get(name, name): value for name, value in values.items()}
    # Leave records that die again during the job: otherwise the job never ends.
    entry_filter |= {"state": RecoveryEntry.State.OPEN, "begun": started_at}
    return Selected(
        [_ENTRY_SOURCE],
        entry_filter,
        lambda ids: transactions.retrying(partial(change, ids, _BULK)),
    )


class Records:
    """Records of a CRM or a policy that are not in flight, policy by policy in the order of their
    keys; times are those of their last change."""

    def __init__(self, values: Values, started_at: datetime) -> None:
        if "crm" not in values and "policy" not in values:
            raise InvalidInput(gettext("choose a CRM or a policy"), "crm")
        self._values, self._begun, self._by = values, started_at, _BULK

    def apply(self, ids: Sequence[int]) -> Applied:
        return Applied(entries.resend(ids, self._begun, self._by))

    def page(self, position: str, limit: int) -> Page:
        policy_ids = policies.matching(policies.by_id(), self._values)
        return select_in_places(policy_ids, self._read, position, limit)

    def _read(self, policy: int, after: str, size: int) -> list[Row]:
        values = self._values
        rows = sql.of_one(Record.objects.all(), "policy_id", policy).filter(key__gt=after)
        # Each policy has one row for the key, which the unique index finds.
        if "key" in values:
            rows = Record.objects.filter(policy_id=policy, key=values["key"]).filter(key__gt=after)
        columns = ("key", "id", "state", "updated_at")
        page = rows.order_by("policy_id", "key").values_list(*columns)[:size]
        return [
            Row(
                record_id,
                key,
                state not in entries.EXCLUDED_STATES
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
    if id.startswith(RECORD):
        rows = Record.objects.filter(id=filters.number(id.removeprefix(RECORD)))
    else:
        hive, key = policies.of_hive(policies.by_id()), policies.key_of(filters.number(id))
        rows = Record.objects.filter(policy_id__in=hive, key=key)
    records = {record.pk: record for record in rows}
    if not records:
        raise InvalidInput(gettext("nothing was read of it for a CRM yet"), "id")
    if recipient:
        record_id = filters.number(recipient, "recipient")
        if record_id not in records:
            raise InvalidInput(gettext("there is no such record"), "recipient")
        return ChosenRecords(by), [record_id]
    dead = [pk for pk, record in records.items() if record.state == Record.State.DEAD]
    return ChosenRecords(by), dead


# -- previews and outcomes -----------------------------------------------------------------------
def show(rows: Tally[Kind], started_at: datetime, of_records: bool) -> Preview:
    """The preview of entries, or of records, that were counted."""
    policies_by_id = policies.by_id()
    titles = {(pk, what): f"{policies_by_id.get(pk, pk)} · {what}" for pk, what in rows.groups}
    sample = [str(pk) for pk in rows.sample]
    return rows.preview(started_at, titles, lines(sample, of_records))


def outcome(ids: Sequence[str], of_records: bool) -> dict[str, Ending]:
    record_by_id = _records_named(ids, of_records)
    rows = Record.objects.filter(id__in=[pk for pk in record_by_id.values() if pk is not None])
    # A record whose row is to be read again keeps its state until the poller has done so.
    endings: dict[int, Ending] = {
        pk: "waiting" if version < 0 else _ENDINGS.get(state, "waiting")
        for pk, state, version in rows.order_by().values_list("id", "state", "version")
    }
    ending_by_id: dict[str, Ending] = {
        pk: endings[record] for pk, record in record_by_id.items() if record in endings
    }
    # An entry about an operation that its queue refused has no record.
    entry_ids = [int(pk) for pk, record in record_by_id.items() if record is None]
    for entry, state in RecoveryEntry.objects.filter(id__in=entry_ids).values_list("id", "state"):
        ending_by_id[str(entry)] = "arrived" if state == RecoveryEntry.State.SOLVED else "waiting"
    return ending_by_id


def lines(ids: Sequence[str], of_records: bool) -> list[Hit]:
    record_by_id = _records_named(ids, of_records)
    record_ids = [record for pk in ids if (record := record_by_id.get(pk)) is not None]
    return list(message_lines.of_records(record_ids, policies.by_id()).values())


def _records_named(ids: Sequence[str], of_records: bool) -> dict[str, int | None]:
    """Noted id → its record; entries that are gone are left out."""
    if of_records:
        return {pk: int(pk) for pk in ids}
    rows = RecoveryEntry.objects.filter(id__in=[int(pk) for pk in ids])
    return {str(pk): record for pk, record in rows.values_list("id", "record_id")}


def describe_entries(ids: Sequence[int]) -> Described[Kind]:
    rows = RecoveryEntry.objects.filter(id__in=ids)
    for pk, policy, why, at in rows.values_list("id", "policy_id", "error_class", "created_at"):
        yield pk, (policy, why), at


def describe_records(ids: Sequence[int]) -> Described[Kind]:
    rows = Record.objects.filter(id__in=ids).values_list("id", "policy_id", "state")
    for pk, policy, state in rows:
        yield pk, (policy, str(_State(state).label)), id_numbers.datetime_of(pk)


# -- the actions ---------------------------------------------------------------------------------
def _since(help: Text) -> FilterField:
    """Rows are filtered by their times, not by their ids."""
    return replace(filters.since(help), read=filters.moment)


def _until(help: Text) -> FilterField:
    return replace(filters.until(help), read=filters.moment)


_OF_ENTRIES: Mapping[str, Any] = {
    "describe": describe_entries,
    "show": partial(show, of_records=False),
    "lines": partial(lines, of_records=False),
}
_OF_RECORDS: Mapping[str, Any] = {
    "describe": describe_records,
    "show": partial(show, of_records=True),
    "outcome": partial(outcome, of_records=True),
    "lines": partial(lines, of_records=True),
}
_ENTRIES = {
    "crm": CRM,
    "policy": POLICY,
    "error_class": ERROR_CLASS,
    "since": _since(_("In the recovery log since this time or later")),
    "until": _until(_("In the recovery log before this time")),
    "ids": filters.ids(_("Ids of entries of the recovery log, at most 500")),
}

ACTIONS: Mapping[str, BulkAction] = {
    "resend": bulk_action(
        partial(select_entries, change=entries.resend_entries),
        title=_("Try dead records again"),
        fields=_ENTRIES,
        help=_("Each gets all its tries again. Rows that the mapping refused are read again."),
        select_message=select_message,
        outcome=partial(outcome, of_records=False),
        **_OF_ENTRIES,
    ),
    "dismiss": bulk_action(
        partial(select_entries, change=entries.dismiss),
        title=_("Dismiss dead records"),
        fields=_ENTRIES,
        help=_("These records are not sent. Later changes at the source are sent as usual."),
        **_OF_ENTRIES,
    ),
    "replay": bulk_action(
        Records,
        title=_("Send records again"),
        fields={
            "crm": CRM,
            "policy": POLICY,
            "key": FilterField(_("Record key"), _("Exact: the key of the row at its source")),
            "since": _since(_("Last changed at this time or later")),
            "until": _until(_("Last changed before this time")),
        },
        help=_("Each record is sent in its newest version, also when it is confirmed. Choose a CRM "
               "or a policy. Dismissed records are left alone."),
        **_OF_RECORDS,
    ),
}  # fmt: skip
