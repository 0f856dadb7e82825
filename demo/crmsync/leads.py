"""The leads of the demo, their changes, and the record of each that a CRM and the hive must hold.

Standard library only: the account is made from this list, so it must not share code with the
programs that it checks. A phone number belongs to one person.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from demo.account import Records

CARS, COURSES = "test-drive", "trial-lesson"
PAGES = (CARS, COURSES)
TABLE, CALL_CENTRE, HIVE = "sales-table", "call-centre", "hive"
# Refused by a CRM: the table takes no long company and no empty name, the call centre not every
# e-mail.
Poison = Literal["", "company", "name", "email"]
BLOCKED_DOMAIN = "throwaway.example"
MAX_COMPANY = 40
Route = Literal["form", "single", "batch"]

_NAMES = (
    "王小明", "李娜", "O'Brien, Síle", 'Jörg "Jogi" Müller', "<b>Bold & Sons</b>", "محمد علي",
    "Robert'); DROP TABLE lead;--", "Анна Каренина", "田中 さくら 🌸", "José {name} Núñez",
)  # fmt: skip
_COMPANIES = ("", "Smith & Søn", "上海某某有限公司", '50% "off" \\ GmbH', "{field.Phone} Ltd")
_CITIES = ("", "上海", "Zürich", "São Paulo")
# A number for each kind of trouble in so many leads; in all of them the page is COURSES or any.
_POISON_EVERY = 500
_POISON: Mapping[int, Poison] = {5: "company", 105: "name", 204: "email", 307: "company"}


@dataclass
class Lead:
    """A person, as the demo knows them by the answers.

    `extra` has no empty fields. `id` is '' until the platform has answered with it.
    """

    number: int
    page: str
    name: str
    phone: str
    extra: dict[str, Any]
    poison: Poison = ""
    id: str = ""
    deleted: bool = False

    @property
    def route(self) -> Route:
        """How the lead comes in: of twelve, two by a form, one alone over the API, the others in
        batches."""
        routes: tuple[Route, ...] = ("form", "form", "single")
        place = self.number % 12
        return routes[place] if place < len(routes) else "batch"


@dataclass(frozen=True)
class Change:
    """A request about a lead, and the lead's fields after it."""

    method: Literal["PATCH", "PUT", "DELETE"]
    body: Mapping[str, Any] | None
    name: str
    extra: Mapping[str, Any]


def all_leads(count: int) -> list[Lead]:
    return [lead(number) for number in range(count)]


def lead(number: int) -> Lead:
    """The lead with this number; it is the same in each run."""
    poison = _POISON.get(number % _POISON_EVERY, "")
    page = PAGES[number % 2]
    name = f"{_NAMES[number % len(_NAMES)]} {number}"
    extra: dict[str, Any] = {
        "email": f"p{number}@mail.example",
        "company": _COMPANIES[number % len(_COMPANIES)],
    }
    if page == CARS:
        extra["city"] = _CITIES[number % len(_CITIES)]
    elif number % 12 > 1:  # a form has texts only
        extra["budget"] = number * 10
    if poison == "company":
        extra["company"] = f"Company {number}, on purpose longer than the {MAX_COMPANY} characters"
    elif poison == "name":
        name = ""
    elif poison == "email":
        extra["email"] = f"p{number}@{BLOCKED_DOMAIN}"
    values = {key: value for key, value in extra.items() if value != ""}
    return Lead(number, page, name, phone(number), values, poison)


def phone(number: int) -> str:
    return f"138{number:08d}"


def changes(lead: Lead) -> Sequence[Change]:
    """The changes to a lead after it came in, in this order; most leads have none."""
    if lead.poison:
        return ()
    changes: list[Change] = []
    if lead.number % 4 == 0:
        extra = {**lead.extra, "company": f"Moved on {lead.number}"}
        extra.pop("city", None)  # emptied, where there was one
        patch = {"company": extra["company"]}
        if lead.page == CARS:
            patch["city"] = None
        changes.append(Change("PATCH", {"extra": patch}, lead.name, extra))
    if lead.number % 20 == 3:
        name = f"{lead.name} again"
        extra = {"email": f"new{lead.number}@mail.example"}
        body = {"name": name, "phone": lead.phone, "extra": extra}
        changes.append(Change("PUT", body, name, extra))
    if lead.number % 10 == 6:
        changes.append(Change("DELETE", None, lead.name, lead.extra))
    return changes


def apply(lead: Lead, change: Change) -> None:
    """Note a change in the demo's list, after it was answered."""
    lead.name, lead.extra = change.name, dict(change.extra)
    lead.deleted = lead.deleted or change.method == "DELETE"


# -- records ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Side:
    """A CRM, or the hive: the fields that a lead has there, and the leads that it refuses."""

    name: str
    fields: Callable[[Lead], Mapping[str, Any]]
    refuses: frozenset[Poison] = frozenset()

    def is_refused(self, lead: Lead) -> bool:
        return lead.poison in self.refuses

    def records(self, leads: Sequence[Lead]) -> Records:
        """The records that it must hold: phone number → id, fields."""
        return [
            record(lead.id, lead.phone, self.fields(lead))
            for lead in leads
            if not lead.deleted and not self.is_refused(lead)
        ]


def record(id: str, phone: str, fields: Mapping[str, Any]) -> tuple[str, object]:
    """A record as a CRM or the hive holds it; fields without a value are left out."""
    return phone, (id, {name: value for name, value in fields.items() if value not in (None, "")})


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
