"""The demo's account notices each way in which a CRM can be wrong: real CRMs, planted faults."""

import json
import sqlite3
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crmsync.models import RecoveryEntry
from demo import account
from demo.account import Differences, Records
from demo.crmsync import leads
from demo.crmsync.crms import CallCentre, SalesTable
from demo.crmsync.leads import CRMS, Lead, Side
from demo.crmsync.scenario import is_explained

IN_TABLE, AT_CALL_CENTRE = CRMS
TABLE = IN_TABLE.name
PEOPLE = [1, 2, 3, 4, 5, 6, 105, 204]  # 5 and 105 are refused by the table, 204 by the call centre


@pytest.fixture
def people() -> list[Lead]:
    made = [replace(leads.lead(number), id=f"id-{number:03d}") for number in PEOPLE]
    for one in made:
        for change in leads.changes(one):
            leads.apply(one, change)
    return made


def compare(side: Side, people: list[Lead], records: Records) -> Differences:
    return account.compare({side.name: side.records(people)}, {side.name: records})


def person(people: list[Lead], number: int) -> Lead:
    return next(one for one in people if one.number == number)


class Table:
    """Filled as it must be, by statements of the test's own."""

    def __init__(self, file: Path, people: list[Lead]) -> None:
        self.file = file
        self.table = SalesTable(file)
        for one in people:
            if one.poison not in ("company", "name"):
                e = one.extra
                self.run(
                    "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)",
                    one.id, one.name, one.phone, e.get("email"), e.get("company"), e.get("city"),
                    one.page, int(one.deleted),
                )  # fmt: skip

    def run(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.file)) as connection:
            assert connection.execute(statement, values).rowcount == 1
            connection.commit()


def test_a_table_that_holds_everything_is_equal(tmp_path: Path, people: list[Lead]) -> None:
    table = Table(tmp_path / "crm.sqlite3", people).table
    assert person(people, 6).deleted
    assert len(table.read()) == len(PEOPLE) - 3
    assert compare(IN_TABLE, people, table.read()) == Differences()


FAULTS = [
    ("DELETE FROM customer WHERE lead = 'id-001'", Differences([TABLE], missing=["13800000001"])),
    ("UPDATE customer SET city = 'X' WHERE lead = 'id-002'",
     Differences([TABLE], different=["13800000002"])),
    ("UPDATE customer SET company = NULL WHERE lead = 'id-003'",
     Differences([TABLE], different=["13800000003"])),
    ("UPDATE customer SET lead = 'id-999' WHERE lead = 'id-001'",
     Differences([TABLE], different=["13800000001"])),
    ("UPDATE customer SET gone = 0 WHERE lead = 'id-006'",
     Differences([TABLE], extra=["13800000006"])),
    ("UPDATE customer SET gone = 1 WHERE lead = 'id-004'",
     Differences([TABLE], missing=["13800000004"])),
    ("UPDATE customer SET phone = '139' WHERE lead = 'id-001'",
     Differences([TABLE], missing=["13800000001"], extra=["139"])),
    ("INSERT INTO customer SELECT 'again', name, phone, email, company, city, page, gone, version "
     "FROM customer WHERE lead = 'id-001'", Differences([TABLE], extra=["13800000001"])),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "found"), FAULTS)
def test_a_fault_in_the_table_is_noticed(
    tmp_path: Path, people: list[Lead], fault: str, found: Differences
) -> None:
    if "id-003" in fault:
        person(people, 3).extra["company"] = "kept"
    crm = Table(tmp_path / "crm.sqlite3", people)
    crm.run(fault)
    assert compare(IN_TABLE, people, crm.table.read()) == found
    assert found.count >= 1


@pytest.fixture
def centre() -> Iterator[CallCentre]:
    with CallCentre() as running:
        yield running


Send = Callable[..., list[Any]]


@pytest.fixture
def send(centre: CallCentre) -> Send:
    """Contacts by the CRM's own interface: (external id, version, properties, deleted)."""

    def post(*contacts: tuple[str, int, dict[str, Any], bool]) -> list[Any]:
        names = ("external_id", "version", "properties", "deleted")
        body = {"contacts": [dict(zip(names, each, strict=True)) for each in contacts]}
        headers = {"Authorization": f"Bearer {centre.token}"}
        request = urllib.request.Request(
            f"{centre.url}/contacts", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return list(json.load(answer)["results"])

    return post


def properties(one: Lead) -> dict[str, Any]:
    e = one.extra
    return {
        "LastName": one.name or "unknown", "Phone": one.phone, "Email": e.get("email"),
        "Company": e.get("company", "private"), "Budget": e.get("budget"),
        "LeadSource": "landing page",
    }  # fmt: skip


def test_the_call_centre_is_read_back(centre: CallCentre, send: Send, people: list[Lead]) -> None:
    *results, refused = send(*[(one.id, 2, properties(one), False) for one in people])
    assert {each["status"] for each in results} == {"stored"}
    assert (refused["property"], "throwaway.example" in refused["message"]) == ("Email", True)
    gone = person(people, 6)
    assert compare(AT_CALL_CENTRE, people, centre.read()).extra == [gone.phone]
    send((gone.id, 3, {}, True), ("id-001", 1, {"LastName": "an older version"}, False))
    assert compare(AT_CALL_CENTRE, people, centre.read()) == Differences()
    send(("id-001", 3, {"Budget": "10"}, False))  # a text instead of a number
    assert compare(AT_CALL_CENTRE, people, centre.read()).different == ["13800000001"]


def test_who_does_not_know_the_token_gets_nothing(centre: CallCentre, send: Send) -> None:
    centre.token = "wrong"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        send(("a", 1, {}, False))


def test_a_record_of_nobody_is_noticed(people: list[Lead]) -> None:
    stranger = leads.record("id-x", "12345", {})
    assert compare(IN_TABLE, [], [stranger]) == Differences([TABLE], extra=["12345"])


@pytest.mark.parametrize(
    ("field", "reason", "explained"),
    [
        ("company", "The value for company has 66 characters; 40 are allowed.", True),
        ("", "The value for company has 66 characters; 40 are allowed.", False),
        ("company", "Something went wrong.", False),
        ("name", "The column name cannot be empty.", False),
    ],
)
def test_a_reason_names_the_field(field: str, reason: str, explained: bool) -> None:
    key, long_company = ("sales-table", "id-005"), leads.lead(5)
    entry = RecoveryEntry(field=field, reason=reason)
    assert is_explained({key: entry}, key, long_company) is explained
    assert not is_explained({}, key, long_company)
