"""The demo's account: each CRM's records compared with the answered leads, field by field,
deletions included.

Standard library only: the account uses the demo's own list, and no code of the platform.
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
    """A CRM, or the hive. `fields` gives the fields of a lead there; `refuses` are kinds of leads
    that it does not take."""

    name: str
    fields: Callable[[Lead], Mapping[str, Any]]
    refuses: frozenset[Poison] = frozenset()

    def is_refused(self, lead: Lead) -> bool:
        return lead.poison in self.refuses and self.name not in lead.corrected

    def expected(self, lead: Lead) -> Mapping[str, Any] | None:
        """The fields that it must hold; None when it must not hold this lead."""
        if lead.deleted or self.is_refused(lead):
            return None
        # This CRM must hold the values that a person corrected in the recovery log.
        fields = {**self.fields(lead), **lead.corrected.get(self.name, {})}
        return {name: value for name, value in fields.items() if value not in (None, "")}


@dataclass
class Differences:
    """Phone numbers of leads with wrong records; `more` are records too many: of no lead, or a
    second one of a lead."""

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


def compare(side: Side, leads: Sequence[Lead], records: Sequence[Held]) -> Differences:
    differences = Differences()
    by_phone: dict[str, list[Held]] = defaultdict(list)
    for record in records:
        by_phone[record.phone].append(record)
    # A lead is found by its phone number, which belongs to one person.
    for lead in leads:
        fields, of_lead = side.expected(lead), by_phone.pop(lead.phone, [])
        if fields is None:
            differences.undeleted += [lead.phone] * bool(of_lead)
        elif not of_lead:
            differences.missing.append(lead.phone)
        elif dict(of_lead[0].fields) != dict(fields) or of_lead[0].id != lead.id:
            differences.different.append(lead.phone)
        differences.more += [lead.phone] * (len(of_lead) - 1)
    # The remaining records belong to no lead of the demo.
    differences.more += [phone for phone, others in by_phone.items() for _ in others]
    return differences


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
