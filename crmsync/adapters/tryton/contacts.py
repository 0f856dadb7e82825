"""Phone numbers and addresses of Tryton's parties.

A party shows its first phone number as its field `phone`, and so on; they are kept in a model of
their own, and only by way of that can they be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MODEL = "party.party"
CONTACTS = "party.contact_mechanism"
FIELD = "contact_mechanisms"
# Fields of a party that are its first contact mechanism of the type of that name.
TYPES = frozenset({"phone", "mobile", "fax", "email", "website"})


@dataclass(frozen=True, slots=True)
class Contact:
    id: int
    value: str


# Values by party and type.
Contacts = Mapping[tuple[int, str], Contact]


def first(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str], Contact]:
    """The first contact of each party and type; `rows` are in Tryton's order."""
    contacts: dict[tuple[int, str], Contact] = {}
    for row in rows:
        contact = Contact(int(row["id"]), str(row.get("value") or ""))
        contacts.setdefault((int(row["party"]), str(row["type"])), contact)
    return contacts


def values(fields: Mapping[str, Any], party: int, contacts: Contacts) -> dict[str, Any]:
    """The fields of a party as Tryton takes them; `party` is 0 for one that is created."""
    plain = {name: value for name, value in fields.items() if name not in TYPES}
    changes: list[list[Any]] = []
    for kind in sorted(TYPES & fields.keys()):
        value, contact = fields[kind], contacts.get((party, kind))
        if value in (None, ""):
            if contact:
                changes.append(["delete", [contact.id]])
        elif contact is None:
            changes.append(["create", [{"type": kind, "value": value}]])
        elif contact.value != value:
            changes.append(["write", [contact.id], {"value": value}])
    return {**plain, FIELD: changes} if changes else plain
