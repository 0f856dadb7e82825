"""The recovery log as a person reads it: entries of poisoned leads, two of which are repaired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from crmsync.demo.account import CRMS, TABLE
from crmsync.demo.leads import MAX_COMPANY, Lead, Poison
from crmsync.demo.traffic import Traffic
from crmsync.models import Crm, RecoveryEntry
from crmsync.recovery import actions

# The field's name in the CRM that refuses it.
_FIELDS: Mapping[Poison, str] = {"company": "company", "name": "name", "email": "Email"}
Key = tuple[str, str]  # the CRM's name and the lead's id
Entries = Mapping[Key, RecoveryEntry]


def entries() -> Entries:
    """The open entries."""
    names = dict(Crm.objects.values_list("id", "name"))
    rows = RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN)
    return {(names.get(row.crm_id, ""), row.key): row for row in rows}


def poisoned(leads: Sequence[Lead]) -> dict[Key, Lead]:
    """The leads that each CRM refuses."""
    return {(s.name, lead.id): lead for s in CRMS for lead in leads if s.is_refused(lead)}


def is_explained(open_entries: Entries, key: Key, lead: Lead) -> bool:
    """True if a person knows what to change: the entry names the field, and so does its reason."""
    entry, field = open_entries.get(key), _FIELDS[lead.poison]
    return entry is not None and entry.field == field and field in entry.reason


def repair_two(traffic: Traffic, open_entries: Entries) -> list[str]:
    """Correct the first long company in the recovery log, so that only this CRM gets the new name,
    and the second by its business system, so that every CRM does. Returns descriptions."""
    long = [one for one in traffic.leads if one.poison == "company"][:2]
    if len(long) < 2:
        return []
    in_log, at_source = long
    entry = open_entries[TABLE, in_log.id]
    shorter = f"Corrected {in_log.number}"
    fields = msgspec.json.decode(bytes(entry.request))["fields"]
    actions.edit_and_retry(entry.pk, {**fields, "company": shorter}, by="demo")
    in_log.corrected[TABLE] = {"company": shorter}
    traffic.shorten_company(at_source, at_source.extra["company"][:MAX_COMPANY].strip())
    at_source.poison = ""
    return [f"{TABLE}: lead {in_log.id} edited and tried again",
            f"{TABLE}: lead {at_source.id} corrected by its system"]  # fmt: skip
