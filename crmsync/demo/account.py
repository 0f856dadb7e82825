"""What each CRM must hold, compared with what it holds: field by field, deletions included.

Standard library only: it works on the demo's own list of what was answered, and imports nothing of
what it checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crmsync.demo.leads import Lead, Poison

TABLE, CALL_CENTRE, HIVE = "sales-table", "call-centre", "hive"


@dataclass(frozen=True)
class Held:
    """A record as a CRM or the hive holds it; fields without a value are left out."""

    id: str
    phone: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """A CRM, or the hive. `fields` says which fields a lead has there; `refuses` what it does not
    take."""

    name: str
    fields: Callable[[Lead], Mapping[str, Any]]
    refuses: frozenset[Poison] = frozenset()

    def is_refused(self, lead: Lead) -> bool:
        return lead.poison in self.refuses and self.name not in lead.corrected

    def expected(self, lead: Lead) -> Mapping[str, Any] | None:
        """The fields that it must hold; None when it must not hold this lead."""
        if lead.deleted or self.is_refused(lead):
            return None
        # What a person corrected in the recovery log is what this CRM must hold.
        made = {**self.fields(lead), **lead.corrected.get(self.name, {})}
        return {name: value for name, value in made.items() if value not in (None, "")}


@dataclass
class Differences:
    """Phone numbers of leads that are not held as they must be; `more` are records that nobody
    expects: of no lead, or a second one of a lead."""

    missing: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    undeleted: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.lost + len(self.more)

    @property
    def lost(self) -> int:
        return len(self.missing) + len(self.different) + len(self.undeleted)


def compare(side: Side, leads: Sequence[Lead], held: Sequence[Held]) -> Differences:
    found = Differences()
    by_phone: dict[str, list[Held]] = defaultdict(list)
    for record in held:
        by_phone[record.phone].append(record)
    # A lead is found by its phone number, which belongs to one person.
    for lead in leads:
        expected, records = side.expected(lead), by_phone.pop(lead.phone, [])
        if expected is None:
            found.undeleted += [lead.phone] * bool(records)
        elif not records:
            found.missing.append(lead.phone)
        elif dict(records[0].fields) != dict(expected) or records[0].id != lead.id:
            found.different.append(lead.phone)
        found.more += [lead.phone] * (len(records) - 1)
    # What is left belongs to no lead of the demo.
    found.more += [phone for phone, records in by_phone.items() for _ in records]
    return found


def _in_table(lead: Lead) -> Mapping[str, Any]:
    extra = lead.extra
    return {
        "name": lead.name, "phone": lead.phone, "email": extra.get("email"),
        "company": extra.get("company"), "city": extra.get("city"), "page": lead.page,
    }  # fmt: skip


def _at_call_centre(lead: Lead) -> Mapping[str, Any]:
    extra = lead.extra
    return {
        "LastName": lead.name or "unknown", "Phone": lead.phone, "Email": extra.get("email"),
        "Company": extra.get("company", "private"), "Budget": extra.get("budget"),
        "LeadSource": "landing page",
    }  # fmt: skip


def _in_hive(lead: Lead) -> Mapping[str, Any]:
    return {"page": lead.page, "name": lead.name, "phone": lead.phone, **lead.extra}


CRMS = (
    Side(TABLE, _in_table, frozenset(["company", "name"])),
    Side(CALL_CENTRE, _at_call_centre, frozenset(["email"])),
)
IN_HIVE = Side(HIVE, _in_hive)
