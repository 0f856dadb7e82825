"""The leads of the demo, their changes, and the leads that a CRM refuses.

Standard library only: the account is computed from this list, so it must not share code with the
platform. A phone number belongs to one person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

CARS, COURSES = "test-drive", "trial-lesson"
PAGES = (CARS, COURSES)
# Leads that a CRM refuses: the table a long company or no name, the call centre some e-mail.
Poison = Literal["", "company", "name", "email"]
BLOCKED_DOMAIN = "throwaway.example"
MAX_COMPANY = 40
Route = Literal["form", "script", "single", "batch"]

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
    """One person, as the platform's answers have it.

    `extra` has no empty fields. `id` is '' until the platform has answered with it. `corrected` are
    fields that a person set in the recovery log, by the CRM's name.
    """

    number: int
    page: str
    name: str
    phone: str
    extra: dict[str, Any]
    poison: Poison = ""
    id: str = ""
    deleted: bool = False
    corrected: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def route(self) -> Route:
        """How the lead comes in: of twelve, two by a form, one by a script on a page elsewhere, one
        alone over the API, the others in batches."""
        routes: tuple[Route, ...] = ("form", "form", "script", "single")
        place = self.number % 12
        return routes[place] if place < len(routes) else "batch"


@dataclass(frozen=True)
class Change:
    """A request about a lead, and the lead's values after it."""

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


def changes(one: Lead) -> Sequence[Change]:
    """The changes to a lead after it came in, in this order; most leads have none."""
    if one.poison:
        return ()
    all_changes: list[Change] = []
    if one.number % 4 == 0:
        extra = {**one.extra, "company": f"Moved on {one.number}"}
        extra.pop("city", None)  # emptied, where there was one
        patch = {"company": extra["company"]}
        if one.page == CARS:
            patch["city"] = None
        all_changes.append(Change("PATCH", {"extra": patch}, one.name, extra))
    if one.number % 20 == 3:
        name = f"{one.name} again"
        extra = {"email": f"new{one.number}@mail.example"}
        body = {"name": name, "phone": one.phone, "extra": extra}
        all_changes.append(Change("PUT", body, name, extra))
    if one.number % 10 == 6:
        all_changes.append(Change("DELETE", None, one.name, one.extra))
    return all_changes


def apply(one: Lead, change: Change) -> None:
    """Note a change in the demo's list, after it was answered."""
    one.name, one.extra = change.name, dict(change.extra)
    one.deleted = one.deleted or change.method == "DELETE"
