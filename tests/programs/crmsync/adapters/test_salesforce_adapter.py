"""The Salesforce adapter, against a server of Salesforce's shapes on a real socket."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from crmsync.adapters.base import Record
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from crmsync.adapters.salesforce import session
from crmsync.adapters.salesforce.adapter import SalesforceAdapter
from crmsync.adapters.salesforce.session import long_id
from msgplatform.core.errors import InvalidInput
from tests.support.http_sinks import Sink, refusing_port
from tests.support.json_stub import Answer, Asked, asked, serving
from tests.support.salesforce_stub import SalesforceStub

Open = Callable[..., SalesforceAdapter]


@pytest.fixture
def open_adapter(settings: Any) -> Iterator[Open]:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    opened: list[SalesforceAdapter] = []

    def open_one(url: str, secret: str = "hush-hush", **given: Any) -> SalesforceAdapter:
        credentials = {"client_id": "the-client", "client_secret": secret}
        opened.append(SalesforceAdapter({"login_url": url, **given}, credentials))
        return opened[-1]

    yield open_one
    for adapter in opened:
        adapter.close()


@pytest.fixture
def salesforce() -> SalesforceStub:
    return SalesforceStub()


@pytest.fixture
def server(salesforce: SalesforceStub) -> Iterator[Sink]:
    with serving(salesforce) as server:
        salesforce.url = server.url("")
        yield server


def lead(key: str, version: int = 1, **fields: Any) -> Record:
    return Record(key, version, {"LastName": f"name {key}", "Company": "X", **fields})


def test_creates_changes_deletes_and_reads_back(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    adapter = open_adapter(server.url(""))
    first, second = adapter.send([lead("a", Phone="138"), lead("b'x")])
    assert isinstance(first, Ok)
    assert isinstance(second, Ok)
    assert (first.created, second.created) == (True, True)
    assert adapter.send([lead("a", 2, Phone=None), lead("b'x", 2)]) == [
        Ok(first.remote_id, False), Ok(second.remote_id, False),
    ]  # fmt: skip
    assert adapter.send([lead("a", 3, Phone="1")]) == [Ok(first.remote_id, False)]
    assert salesforce.leads[first.remote_id] == {
        "LastName": "name a", "Company": "X", "Phone": "1", "Hive_Id__c": "a",
    }  # fmt: skip
    assert adapter.read(["b'x", "nobody"])["b'x"].remote_id == second.remote_id
    assert adapter.look_up([lead("a", 3, Phone="1"), lead("a", 4, Phone="2"), lead("c")]) == [
        Ok(first.remote_id, False),
        Conflict(first.remote_id),
        Retry(0.0, "The CRM does not hold the record."),
    ]
    gone = [Record(key, 9, {}, deleted=True) for key in ("a", "b'x", "never sent")]
    assert adapter.send(gone) == [
        Ok(first.remote_id, False), Ok(second.remote_id, False), Ok("", False),
    ]  # fmt: skip
    again = Record("a", 10, {}, True, first.remote_id)
    assert adapter.send([again]) == [Ok(first.remote_id, False)]
    assert salesforce.leads == {}
    assert not server.trouble


def test_two_hundred_in_a_call(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    outcomes = open_adapter(server.url("")).send([lead(f"k{number}") for number in range(450)])
    assert all(isinstance(outcome, Ok) and outcome.created for outcome in outcomes)
    calls = [request for request in asked(server) if request.method == "PATCH"]
    assert [len(call.body["records"]) for call in calls] == [200, 200, 50]
    assert len(salesforce.leads) == 450


def test_many_ids_keys_and_names_fit_into_urls(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    names = [f"A_Field_Of_The_Company_{n}__c" for n in range(120)]
    keys = [str(uuid4()) for _ in range(200)]
    ids = [salesforce.add(Hive_Id__c=key, **dict.fromkeys(names, key)) for key in keys]
    adapter = open_adapter(server.url(""))
    stored_by_id = adapter.read_ids(ids, names)
    assert [stored_by_id[each].fields for each in ids] == [dict.fromkeys(names, k) for k in keys]
    stored_by_key = adapter.read(keys)
    assert [stored_by_key[key].remote_id for key in keys] == ids
    gone = [Record(key, 2, {}, True, i) for key, i in zip(keys, ids, strict=True)]
    without_id = [replace(record, key=f"0{record.key}", remote_id="") for record in gone]
    assert adapter.send([*gone, *without_id]) == [
        *(Ok(i, False) for i in ids),
        *[Ok("", False)] * 200,
    ]
    assert salesforce.leads == {}
    assert not server.trouble


def test_errors_of_single_records(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    other = salesforce.add(Email="a@b.c")
    for _ in range(2):
        salesforce.add(Hive_Id__c="twice")
    salesforce.locked = {"locked"}
    records = [
        lead("ok"),
        lead("nameless", LastName=""),
        lead("odd", Color="red"),
        lead("twice"),
        lead("locked"),
        lead("known", Email="a@b.c"),
        lead("twin", LastName="Twin"),
    ]
    expected: list[Outcome] = [
        Invalid("LastName", "Required fields are missing: [LastName]"),
        Invalid("Color", "No such column 'Color' on sobject of type Lead"),
    ]
    adapter = open_adapter(server.url(""))
    together = adapter.send(records)
    assert isinstance(together[0], Ok)
    assert together[1:3] == expected
    assert isinstance(together[3], Invalid)
    assert together[3].field == "Hive_Id__c"
    assert [type(outcome) for outcome in together[4:]] == [Retry, Conflict, Invalid]
    assert together[5] == Conflict(other)
    alone = [adapter.send([record])[0] for record in records]  # by the form for one record
    assert alone[1:3] == expected
    assert alone[3] == Invalid("Hive_Id__c", "Several records of Salesforce have Hive_Id__c twice.")
    assert [type(outcome) for outcome in alone[4:]] == [Retry, Conflict, Invalid]


def test_a_record_that_exists_is_changed_by_its_id(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    other = salesforce.add(Email="a@b.c")
    adapter = open_adapter(server.url(""))
    assert adapter.send([lead("a", Email="a@b.c")]) == [Conflict(other)]
    again = Record("a", 1, {"Email": "a@b.c", "LastName": "A"}, remote_id=other)
    assert adapter.send([again]) == [Ok(other, False)]
    assert salesforce.leads[other]["Hive_Id__c"] == "a"
    (nobody,) = adapter.send([Record("b", 1, {}, remote_id="00Q000000000099AAA")])
    assert isinstance(nobody, Invalid)


def test_a_converted_lead_is_invalid_in_each_form(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    ids = [salesforce.add(Hive_Id__c=key) for key in "ab"]
    salesforce.converted_ids = {*ids}
    by_key = [lead(key) for key in "ab"]
    by_id = [replace(record, remote_id=i) for record, i in zip(by_key, ids, strict=True)]
    adapter = open_adapter(server.url(""))
    for records in (by_key, by_key[:1], by_id, by_id[:1]):
        refusal = Invalid("", "cannot reference converted lead")
        assert adapter.send(records) == [refusal] * len(records)


def test_another_record_has_the_address_of_one_that_is_gone(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    other = salesforce.add(Email="a@b.c")
    gone = Record("a", 2, {"Email": "a@b.c", "LastName": "A"}, remote_id="00Q000000000099EAA")
    adapter = open_adapter(server.url(""))
    assert adapter.send([gone]) == [Conflict(other, is_gone=True)]
    second = replace(gone, key="b", remote_id="00Q000000000098EAA")
    assert adapter.send([gone, second]) == [Conflict(other, is_gone=True)] * 2


def test_records_whose_ids_are_known_go_in_one_call(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    adapter = open_adapter(server.url(""))
    made = adapter.send([lead("a"), lead("b"), lead("c")])
    ids = [outcome.remote_id for outcome in made if isinstance(outcome, Ok)]
    del salesforce.leads[ids[1]]  # by a person: it is stored anew
    salesforce.locked = {"c"}
    before = len(server.requests)
    again = [Record(k, 2, {"LastName": "n"}, remote_id=i) for k, i in zip("abc", ids, strict=True)]
    first, second, third = adapter.send(again)
    assert first == Ok(ids[0])
    assert isinstance(second, Ok)
    assert second.created
    assert second.remote_id not in ids
    assert isinstance(third, Retry)
    assert salesforce.leads[ids[0]] == {"LastName": "n", "Company": "X", "Hive_Id__c": "a"}
    assert [each.path.rpartition("v61.0/")[2] for each in asked(server)[before:]] == [
        "composite/sobjects", "sobjects/Lead/Hive_Id__c/b",
    ]  # fmt: skip
    assert not server.trouble


def test_a_deletion_leaves_a_record_whose_key_differs_in_case(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    adapter = open_adapter(server.url(""))
    (made,) = adapter.send([lead("Ab")])
    assert isinstance(made, Ok)
    assert adapter.send([Record("aB", 2, {}, deleted=True)]) == [Ok("", False)]
    assert list(salesforce.leads) == [made.remote_id]
    assert adapter.send([Record("Ab", 2, {}, deleted=True)]) == [Ok(made.remote_id, False)]
    assert salesforce.leads == {}


def test_two_records_with_one_remote_id(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    """After a conflict; Salesforce takes each id once in a list."""
    one, two = salesforce.add(LastName="1"), salesforce.add(LastName="2")
    adapter = open_adapter(server.url(""))

    def named(key: str, remote_id: str) -> Record:
        return Record(key, 1, {"LastName": f"name {key}"}, remote_id=remote_id)

    batch = [named("a", one), named("b", one[:15]), named("c", two), named("d", one)]
    assert adapter.send(batch) == [Ok(one), Ok(one, False), Ok(two), Ok(one, False)]
    assert salesforce.leads[one] == {"LastName": "name d", "Hive_Id__c": "d"}  # the last one wins
    assert adapter.send(batch[:2]) == [Ok(one, False), Ok(one, False)]
    gone = [Record(key, 2, {}, True, i) for key, i in (("a", one), ("b", one), ("c", two))]
    assert adapter.send(gone) == [Ok(one, False), Ok(one, False), Ok(two, False)]
    assert salesforce.leads == {}
    assert not server.trouble


@pytest.mark.parametrize(
    "whole", ["001D000000IqhSLIAZ", "001D000000IomazIAB", "00QD000000FP14JMAT"]
)
def test_the_two_spellings_of_an_id_are_one(whole: str) -> None:
    """As Salesforce's own documentation has them. An error names the short one."""
    assert (long_id(whole[:15]), long_id(whole), long_id("")) == (whole, whole, "")


def test_after_a_limit_no_calls_follow_for_one_remote_id(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "token-1", "instance_url": stub.url("")})
        return Answer({}, 429, Retry_After="5")

    with serving(answer) as stub:
        batch = [Record(key, 1, {}, remote_id="00Q000000000001AAA") for key in "abc"]
        assert open_adapter(stub.url("")).send(batch) == [Throttled(5.0)] * 3
        assert len(stub.requests) == 2


def test_a_reference_to_nothing_is_invalid_and_not_stored_twice(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "token-1", "instance_url": stub.url("")})
        error = {"statusCode": "INVALID_CROSS_REFERENCE_KEY", "message": "Owner ID: nobody",
                 "fields": ["OwnerId"]}  # fmt: skip
        return Answer([{"success": False, "errors": [error]}] * 2)

    with serving(answer) as stub:
        known = [Record(key, 1, {"OwnerId": "x"}, remote_id=key) for key in ("a", "b")]
        outcomes = open_adapter(stub.url("")).send(known)
        assert outcomes == [Invalid("OwnerId", "Owner ID: nobody")] * 2
        assert len(stub.requests) == 2


def test_a_limit_while_ids_are_looked_up_costs_no_attempt(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "token-1", "instance_url": stub.url("")})
        error = {"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "TotalRequests Limit exceeded."}
        return Answer([error], 403)

    with serving(answer) as stub:
        adapter = open_adapter(stub.url(""))
        assert adapter.send([Record("a", 1, {}, deleted=True)]) == [Throttled(900.0)]
        assert adapter.look_up([lead("a")]) == [Throttled(900.0)]
        assert adapter.check().kind == "unreachable"


@pytest.mark.parametrize("page", [b"<html>Maintenance</html>", b"[]"])
def test_a_page_of_somebody_else_is_no_answer(open_adapter: Open, page: bytes) -> None:
    def answer(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "token-1", "instance_url": stub.url("")})
        return Answer(page)

    with serving(answer) as stub:
        adapter = open_adapter(stub.url(""))
        assert [type(o) for o in adapter.send([Record("a", 1, {}, deleted=True)])] == [Retry]
        assert [type(o) for o in adapter.look_up([lead("a")])] == [Unknown]
        assert adapter.check().kind == "unreachable"


def test_an_expired_token_is_fetched_anew_once(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    adapter = open_adapter(server.url(""))
    adapter.send([lead("a")])
    salesforce.expire()
    assert [type(outcome) for outcome in adapter.send([lead("a", 2), lead("b")])] == [Ok, Ok]
    assert salesforce.logins == 2


@pytest.mark.parametrize(
    ("answer", "kinds", "check"),
    [
        (Answer({"error": "unknown_error", "error_description": "retry your request"}, 400),
         [Retry, Ok], "unreachable"),
        (Answer(b"<html>Bad Request</html>", 400), [Retry, Ok], "unreachable"),
        (Answer({"error": "invalid_grant", "error_description": "login rate exceeded"}, 400),
         [Throttled, Ok], "unreachable"),
        (Answer({"error": "inactive_org"}, 400), [Auth, Ok], "credentials"),
        (Answer({"error": "unknown_error"}, 401), [Auth, Ok], "credentials"),
    ],
)  # fmt: skip
def test_an_error_of_the_login_that_passes_is_no_refusal(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink, answer: Answer,
    kinds: list[type[Outcome]], check: str,
) -> None:  # fmt: skip
    adapter = open_adapter(server.url(""))
    salesforce.login_answers = [answer, answer]
    assert adapter.check().kind == check
    assert [type(adapter.send([lead("a")])[0]) for _ in kinds] == kinds


def test_calls_go_to_the_server_that_the_login_names(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    with serving(salesforce) as login:
        assert [type(outcome) for outcome in open_adapter(login.url("")).send([lead("a")])] == [Ok]
        assert (len(login.requests), len(server.requests)) == (1, 1)


def test_a_token_that_is_never_accepted_is_asked_for_only_twice(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "hush-token", "instance_url": stub.url("")})
        said = {"message": "Session expired: hush-token", "errorCode": "INVALID_SESSION_ID"}
        return Answer([said], 401)

    with serving(answer) as stub:
        outcomes = open_adapter(stub.url("")).send([lead("a"), lead("b")])
        assert outcomes == [Auth("Session expired: •••")] * 2
        assert len(stub.requests) == 4


CONCURRENT = "ConcurrentRequests (Concurrent API Requests) Limit exceeded."
CASES: list[tuple[Answer, Outcome]] = [
    (Answer([{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "TotalRequests Limit"}], 403),
     Throttled(900.0)),
    (Answer([{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": CONCURRENT}], 403),
     Throttled(10.0)),
    (Answer([{"success": False, "errors": [
        {"statusCode": "REQUEST_LIMIT_EXCEEDED", "message": CONCURRENT}]}] * 2), Throttled(10.0)),
    (Answer([{"errorCode": "API_DISABLED_FOR_ORG", "message": "no API"}], 403), Auth("no API")),
    (Answer([{"errorCode": "GONE", "message": "version retired"}], 410), Auth("version retired")),
    (Answer(b"<h1>URL No Longer Exists</h1>", 404), Auth("HTTP 404")),
    (Answer([{"errorCode": "NOT_FOUND", "message": "External ID field does not exist"}], 404),
     Auth("External ID field does not exist")),
    (Answer([{"errorCode": "SERVER_UNAVAILABLE", "message": "busy"}], 503),
     Retry(0.0, "HTTP 503: busy")),
    (Answer({}, 429, Retry_After="5"), Throttled(5.0)),
    (Answer([{"errorCode": "JSON_PARSER_ERROR", "message": "bad"}], 400),
     Refused("HTTP 400: bad")),
    (Answer({"odd": 1}), Unknown("Salesforce's answer has no result for each record.")),
    (Answer([]), Unknown("Salesforce's answer has no result for each record.")),
    (Answer(drop=True), Unknown("")),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "outcome"), CASES)
def test_what_an_answer_means(open_adapter: Open, answer: Answer, outcome: Outcome) -> None:
    def answering(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "token-1", "instance_url": stub.url("")})
        return answer

    with serving(answering) as stub:
        given, other = open_adapter(stub.url("")).send([lead("a"), lead("b")])
        assert given == other
        assert type(given) is type(outcome)
        if outcome != Unknown(""):
            assert given == outcome


def test_the_test_button(open_adapter: Open, server: Sink) -> None:
    adapter = open_adapter(server.url(""))
    assert adapter.check(["LastName"]).kind == "ok"
    assert adapter.check(["Lastname"]).message == (
        "Salesforce has no field Lastname. Did you mean LastName?"
    )
    assert adapter.fields()["LastName"].required
    wrong = open_adapter(server.url(""), secret="wrong-secret")
    assert wrong.check().kind == "credentials"
    assert [type(outcome) for outcome in wrong.send([lead("a")])] == [Auth]
    assert open_adapter(server.url(""), external_id="Phone").check().kind == "settings"
    assert open_adapter(server.url(""), object="Led").check().kind == "settings"
    away = open_adapter(f"http://127.0.0.1:{refusing_port()}")
    assert away.check().kind == "unreachable"
    assert [type(outcome) for outcome in away.send([lead("a")])] == [Retry]
    shown = repr([adapter, adapter.credentials, wrong.check()])
    assert "secret" not in shown
    assert "hush" not in shown


def test_a_login_at_the_address_of_all_orgs_asks_for_that_of_the_org(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink
) -> None:
    text = "request not supported on this domain"
    salesforce.login_answers = [Answer({"error": "invalid_grant", "error_description": text}, 400)]
    check = open_adapter(server.url("")).check()
    assert (check.kind, "login_url" in check.message, text in check.message) == (
        "credentials", True, True,
    )  # fmt: skip


def test_duplicates_can_be_allowed(open_adapter: Open, server: Sink) -> None:
    open_adapter(server.url(""), allow_duplicates=True).send([lead("a")])
    assert asked(server)[-1].headers["sforce-duplicate-rule-header"] == "allowSave=true"


def test_names_that_could_be_something_else_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no name of Salesforce"):
        SalesforceAdapter({"object": "Lead/x"}, {"client_id": "a", "client_secret": "b"})


@pytest.mark.parametrize("others", [0, 2])
def test_fills_in_what_is_empty_and_takes_its_key_off_what_people_made(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink, others: int
) -> None:
    """Alone, and together with other records of people."""
    boss = salesforce.add(LastName="boss", Company="Corp", Phone=None)
    ids = [boss[:15], *(salesforce.add(LastName="x", Company="Y") for _ in range(others))]
    adapter = open_adapter(server.url(""))
    filled = [
        replace(lead(f"k{n}", Phone="138"), remote_id=each, should_fill_empty=True)
        for n, each in enumerate(ids)
    ]
    assert all(isinstance(outcome, Ok) for outcome in adapter.send(filled))
    mended = {"LastName": "boss", "Company": "Corp", "Phone": "138"}
    assert salesforce.leads[boss] == {**mended, "Hive_Id__c": "k0"}
    gone = [Record(f"k{n}", 2, {}, True, each, is_adopted=True) for n, each in enumerate(ids)]
    gone.append(Record("z", 2, {}, True, "00Q999999999999AAA", is_adopted=True))
    assert all(isinstance(outcome, Ok) for outcome in adapter.send(gone))
    assert salesforce.leads[boss] == {**mended, "Hive_Id__c": None}
    assert len(salesforce.leads) == 1 + others


# -- errors of triggers, which come in the form of errors of records ------------------------------
def refusing(code: str, message: str, most: int) -> Callable[[list[Any]], list[Any]]:
    """What an org answers whose trigger fails for more than `most` records."""

    def answer(records: list[Any]) -> list[Any]:
        if len(records) <= most:
            return [{"id": f"00Q{n:012}EAA", "success": True, "created": True, "errors": []}
                    for n, _ in enumerate(records)]  # fmt: skip
        error = {"statusCode": code, "message": message, "fields": []}
        return [{"success": False, "errors": [error]} for _ in records]

    return answer


LIMIT = (
    "HiveTrigger: execution of BeforeInsert caused by: System.LimitException: Too many SOQL: 101"
)
LOCK = (
    "HiveTrigger: execution of AfterInsert caused by: UNABLE_TO_LOCK_ROW, unable to obtain access"
)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("STORAGE_LIMIT_EXCEEDED", "storage limit exceeded", Auth),
        ("INSUFFICIENT_ACCESS_OR_READONLY", "insufficient access rights", Auth),
        ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", LIMIT, Refused),
        ("CANNOT_EXECUTE_FLOW_TRIGGER", "The flow failed", Refused),
        ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", LOCK, Retry),
        ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "Record Currently Unavailable", Retry),
        ("A_CODE_OF_NEXT_YEAR", "nobody knows", Retry),
        ("REQUIRED_FIELD_MISSING", "Required fields are missing: [LastName]", Invalid),
        ("FIELD_CUSTOM_VALIDATION_EXCEPTION", "Say why", Invalid),
    ],
)
def test_an_error_that_all_records_of_a_call_have(
    open_adapter: Open, salesforce: SalesforceStub, server: Sink, code: str, message: str,
    kind: type,
) -> None:  # fmt: skip
    answer = refusing(code, message, most=10)
    salesforce._collection = lambda records: Answer(answer(records))  # type: ignore[method-assign]
    outcomes = open_adapter(server.url("")).send([lead(f"k{n}") for n in range(40)])
    assert {type(outcome) for outcome in outcomes} == {kind}


@pytest.mark.parametrize(
    "answer",
    [
        Answer([{"errorCode": "GONE", "message": "version retired"}], 410),
        Answer([{"errorCode": "INVALID_TYPE", "message": "no object Lead"}], 400),
        Answer([{"errorCode": "UNSUPPORTED_API_VERSION", "message": "old"}], 400),
    ],
)
def test_no_lead_dies_of_a_query_that_is_refused_whatever_it_asks_for(
    open_adapter: Open, answer: Answer
) -> None:
    batches = [
        [Record("a", 2, {}, deleted=True)],
        [Record("a", 1, {"Phone": "1"}, False, "00Q000000000001AAA", should_fill_empty=True)],
    ]
    assert [type(_send(open_adapter, answer, batch)[0]) for batch in batches] == [Auth, Auth]


def _send(open_adapter: Open, answer: Answer, batch: Sequence[Record]) -> list[Outcome]:
    """Send to an org that answers everything but the login with `answer`."""

    def answering(request: Asked) -> Answer:
        if request.path == "/services/oauth2/token":
            return Answer({"access_token": "token-1", "instance_url": stub.url("")})
        return answer

    with serving(answering) as stub:
        return open_adapter(stub.url("")).send(batch)


@pytest.mark.parametrize("status", [400, 403])
def test_a_reference_to_a_record_without_access_is_a_wrong_value(
    open_adapter: Open, status: int
) -> None:
    code = "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY"
    alone = Answer([{"errorCode": code, "message": "insufficient access rights"}], status)
    together = Answer(refusing(code, "insufficient access rights", most=0)([1, 2]))
    for answer, batch in ((alone, [lead("a")]), (together, [lead("a"), lead("b")])):
        assert {type(outcome) for outcome in _send(open_adapter, answer, batch)} == {Invalid}


def test_alone_a_trigger_s_error_is_the_record_s() -> None:
    error = {"statusCode": "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "message": "Name: too short"}
    result = {"success": False, "errors": [error]}
    assert isinstance(session.of_result(result, "Hive_Id__c"), Invalid)
    assert session.of_whole_call([result]) is None
    assert session.of_whole_call([result, {"success": True}]) is None


def test_a_long_message_is_read_in_time() -> None:
    began = time.process_time()
    error = {"statusCode": "FIELD_FILTER", "message": "QueryException: " * 20_000}
    assert isinstance(session.of_result({"errors": [error]}, "Hive_Id__c"), Invalid)
    assert time.process_time() - began < 3
