"""The Tryton adapter against a real Tryton: what it says is compared with Tryton's own tables."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import requests

from crmsync.adapters.base import Record
from crmsync.adapters.outcomes import Auth, Conflict, Invalid, Ok, Outcome, Refused, Retry, Unknown
from crmsync.adapters.tryton.adapter import TrytonAdapter
from tests.support.json_stub import Answer, Asked, serving
from tests.support.tryton_server import PASSWORD, TrytonServer

Open = Callable[..., TrytonAdapter]

PARTIES = "SELECT code, name, active FROM party_party WHERE code LIKE ? || '-%' ORDER BY code"
CONTACTS = """
    SELECT p.code, c.type, c.value FROM party_contact_mechanism c JOIN party_party p
    ON p.id = c.party WHERE p.code LIKE ? || '-%' ORDER BY p.code, c.type
"""


@pytest.fixture(scope="module")
def tryton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrytonServer]:
    with TrytonServer(tmp_path_factory.mktemp("tryton")) as server:
        yield server


@pytest.fixture
def open_adapter(tryton: TrytonServer, settings: Any) -> Iterator[Open]:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    opened: list[TrytonAdapter] = []

    def open_one(password: str = PASSWORD, **given: Any) -> TrytonAdapter:
        set_to = {"url": tryton.url, "database": "crm", "user": "admin", **given}
        opened.append(TrytonAdapter(set_to, {"password": password}))
        opened[-1].client.timeout = 600.0  # a busy machine stores hundreds of parties slowly
        return opened[-1]

    yield open_one
    for adapter in opened:
        adapter.close()


def lead(key: str, version: int = 1, **fields: Any) -> Record:
    return Record(key, version, {"name": f"name {key}", **fields})


def kinds(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


def test_leads_arrive_are_changed_deleted_and_come_back(
    tryton: TrytonServer, open_adapter: Open
) -> None:
    adapter = open_adapter()
    created = adapter.send([lead("one-a", phone="13800000000", email="a@b.c"), lead("one-b")])
    assert all(isinstance(outcome, Ok) and outcome.created for outcome in created)
    assert tryton.rows(PARTIES, "one") == [("one-a", "name one-a", 1), ("one-b", "name one-b", 1)]
    assert tryton.rows(CONTACTS, "one") == [
        ("one-a", "email", "a@b.c"), ("one-a", "phone", "13800000000"),
    ]  # fmt: skip

    ids = [outcome.remote_id for outcome in created if isinstance(outcome, Ok)]
    changed = [lead("one-a", 2, name="王小明", phone="139", email=None), lead("one-c")]
    outcomes = adapter.send(changed)
    assert outcomes[0] == Ok(ids[0], created=False)
    assert isinstance(outcomes[1], Ok)
    assert outcomes[1].created
    assert tryton.rows(PARTIES, "one")[0] == ("one-a", "王小明", 1)
    assert tryton.rows(CONTACTS, "one") == [("one-a", "phone", "139")]

    gone = [Record(key, 3, {}, deleted=True) for key in ("one-a", "one-never")]
    assert adapter.send(gone) == [Ok(ids[0], created=False), Ok("", created=False)]
    assert [active for _, _, active in tryton.rows(PARTIES, "one")] == [0, 1, 1]
    assert adapter.send(gone) == [Ok(ids[0], created=False), Ok("", created=False)]

    assert adapter.send([lead("one-a", 4, phone="137")]) == [Ok(ids[0], created=False)]
    assert tryton.rows(PARTIES, "one")[0] == ("one-a", "name one-a", 1)
    assert tryton.rows(CONTACTS, "one") == [("one-a", "phone", "137")]


def test_the_same_again_makes_no_second_party(tryton: TrytonServer, open_adapter: Open) -> None:
    batch = [lead(f"two-{number:03}", email=f"{number}@b.c") for number in range(450)]
    adapter = open_adapter()
    assert {type(outcome) for outcome in adapter.send(batch)} == {Ok}
    again = adapter.send(batch)
    assert all(isinstance(outcome, Ok) and not outcome.created for outcome in again)
    assert tryton.rows(PARTIES, "two") == [(r.key, r.fields["name"], 1) for r in batch]
    assert tryton.rows(CONTACTS, "two") == [(r.key, "email", r.fields["email"]) for r in batch]


def bisected(adapter: TrytonAdapter, records: Sequence[Record]) -> dict[str, Outcome]:
    """As a handler does: what was refused as a whole is sent in halves."""
    outcomes = dict(zip((r.key for r in records), adapter.send(records), strict=True))
    refused = [record for record in records if isinstance(outcomes[record.key], Refused)]
    if refused:
        half = len(refused) // 2
        outcomes |= bisected(adapter, refused[:half]) | bisected(adapter, refused[half:])
    return outcomes


def test_in_a_refused_batch_the_bad_record_is_found(
    tryton: TrytonServer, open_adapter: Open
) -> None:
    batch = [lead(f"three-{number:02}") for number in range(13)]
    wrong = {"type": "eu_vat", "code": "BE0897290878"}  # its last digits are no checksum
    batch[8] = lead("three-08", identifiers=[["create", [wrong]]])
    adapter = open_adapter()
    together = adapter.send(batch)
    assert kinds(together) == [Refused] * 13
    assert tryton.rows(PARTIES, "three") == []
    outcomes = bisected(adapter, batch)
    bad = outcomes.pop("three-08")
    assert isinstance(bad, Invalid)
    assert "BE0897290878" in bad.message
    assert kinds(list(outcomes.values())) == [Ok] * 12
    assert [code for code, _, _ in tryton.rows(PARTIES, "three")] == sorted(outcomes)

    again = [lead(record.key, 2, name="changed") for record in batch if record.key in outcomes]
    again[4] = lead("three-04", 2, identifiers=[["create", [wrong]]])
    assert kinds(adapter.send(again)) == [Refused] * 12
    assert {name for _, name, _ in tryton.rows(PARTIES, "three")} == {
        f"name {key}" for key in outcomes
    }
    changed = bisected(adapter, again)
    assert isinstance(changed.pop("three-04"), Invalid)
    assert kinds(list(changed.values())) == [Ok] * 11
    assert [n for _, n, _ in tryton.rows(PARTIES, "three")].count("changed") == 11
    (odd,) = adapter.send([lead("three-99", color="red")])
    assert odd == Invalid("color", "party.party has no field color.")


def test_an_answer_that_is_lost_is_looked_up(tryton: TrytonServer, open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        names = ("authorization", "content-type")
        headers = {name: request.headers.get(name, "") for name in names}
        given = requests.post(
            f"{tryton.url}{request.path}", request.raw, headers=headers, timeout=60
        )
        is_lost = request.body["method"].endswith(".create")
        return Answer(given.content, given.status_code, drop=is_lost)

    record = lead("four-a", phone="138")
    with serving(answer) as between:
        adapter = open_adapter(url=between.url(""))
        assert kinds(adapter.send([record])) == [Unknown]
    ((number,),) = tryton.rows("SELECT id FROM party_party WHERE code = 'four-a'")
    direct = open_adapter()
    assert direct.look_up([record, lead("four-a", name="other"), lead("four-b")]) == [
        Ok(str(number), created=False),
        Conflict(str(number)),
        Retry(0.0, "The CRM does not hold the record."),
    ]
    named = Record("four-a", 2, {"name": "other"}, remote_id=str(number))
    assert direct.send([named]) == [Ok(str(number), created=False)]
    assert tryton.rows(PARTIES, "four") == [("four-a", "other", 1)]


def test_a_fault_of_the_server_costs_attempts(tryton: TrytonServer, open_adapter: Open) -> None:
    """Such as of a value for which Tryton has no check: alone it is sent again for a while."""
    adapter = open_adapter()
    odd = lead("seven-a", categories=[["odd", [1]]])
    assert kinds(adapter.send([odd, lead("seven-b")])) == [Refused, Refused]
    assert adapter.send([odd]) == [Retry(0.0, "'odd'")]
    assert kinds(adapter.send([lead("seven-b")])) == [Ok]
    assert adapter.send([lead("seven-a", lang="x")]) == [Retry(0.0, "Tryton gave no reason.")]


def test_the_code_of_a_party_stays(tryton: TrytonServer, open_adapter: Open) -> None:
    adapter = open_adapter()
    (first,) = adapter.send([lead("five-old")])
    assert isinstance(first, Ok)
    other_key = Record("five-new", 1, {"name": "n"}, remote_id=first.remote_id)
    (refused,) = adapter.send([other_key])
    assert isinstance(refused, Invalid)
    assert 'not allowed to modify the field "Code"' in refused.message
    assert tryton.rows(PARTIES, "five") == [("five-old", "name five-old", 1)]


def test_wrong_settings_are_told_apart(open_adapter: Open) -> None:
    assert open_adapter().check(["name", "phone", "email"]).kind == "ok"
    assert open_adapter().check(["nam"]).message == "Tryton has no field nam. Did you mean name?"
    wrong = open_adapter("not-the-password")
    assert wrong.send([lead("six-a")]) == [Auth("Tryton refuses the user or the password.")]
    assert wrong.check().kind == "credentials"
    nowhere = open_adapter(database="crn")
    assert kinds(nowhere.send([lead("six-a")])) == [Auth]
    assert open_adapter(model="party.partei").check().kind == "settings"
    assert open_adapter(key_field="cod").check().kind == "settings"
