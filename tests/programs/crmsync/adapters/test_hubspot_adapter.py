"""The HubSpot adapter, against a server of HubSpot's shapes on a real socket."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from crmsync.adapters.base import Record
from crmsync.adapters.hubspot.adapter import HubSpotAdapter
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
from msgplatform.core.errors import InvalidInput
from tests.support.hubspot_stub import HubSpotStub
from tests.support.json_stub import Answer, asked, serving

Open = Callable[..., HubSpotAdapter]


@pytest.fixture
def open_adapter(settings: Any) -> Iterator[Open]:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    opened: list[HubSpotAdapter] = []

    def open_one(url: str, token: str = "hush-hush", **given: Any) -> HubSpotAdapter:
        opened.append(HubSpotAdapter({"base_url": url, **given}, {"token": token}))
        return opened[-1]

    yield open_one
    for adapter in opened:
        adapter.close()


def lead(key: str, version: int = 1, **fields: Any) -> Record:
    return Record(key, version, {"firstname": f"name {key}", **fields})


@pytest.fixture
def hubspot() -> HubSpotStub:
    return HubSpotStub("hush-hush")


def test_creates_changes_clears_archives_and_reads_back(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        assert adapter.send([lead("a", phone="138"), lead("b")]) == [Ok("501", True),
                                                                     Ok("502", True)]  # fmt: skip
        assert adapter.send([lead("a", 2, phone=None)]) == [Ok("501", False)]
        assert hubspot.contacts["501"] == {"firstname": "name a", "phone": "", "hive_id": "a"}
        assert adapter.read(["a", "nobody"])["a"].fields["firstname"] == "name a"
        assert adapter.look_up([lead("a", 2, phone=None), lead("a", 3, phone="1"), lead("x")]) == [
            Ok("501", False), Conflict("501"), Retry(0.0, "The CRM does not hold the record."),
        ]  # fmt: skip
        gone = [Record(key, 3, {}, deleted=True) for key in ("a", "never sent")]
        assert adapter.send(gone) == [Ok("501", False), Ok("", False)]
        assert adapter.send([Record("b", 3, {}, True, "502")]) == [Ok("502", False)]
        assert hubspot.contacts == {}
        assert not server.trouble


def test_an_object_is_written_as_json(open_adapter: Open, hubspot: HubSpotStub) -> None:
    with serving(hubspot) as server:
        address = {"city": "武汉", "ok": True, "zip": None}
        open_adapter(server.url("")).send([lead("a", address=address, others=[address, "x"])])
        written = '{"city":"武汉","ok":true,"zip":null}'
        assert hubspot.contacts["501"]["address"] == written
        assert hubspot.contacts["501"]["others"] == f"{written};x"


def test_a_time_that_has_no_utc_goes_as_it_is(open_adapter: Open, hubspot: HubSpotStub) -> None:
    times = ["2026-02-30T10:00:00+08:00", "0001-01-01T00:00:00+08:00", "9999-12-31T23:59:59-05:00"]
    with serving(hubspot) as server:
        records = [lead(str(number), when=time) for number, time in enumerate(times)]
        outcomes = open_adapter(server.url("")).send(records)
        assert [type(outcome) for outcome in outcomes] == [Ok, Ok, Ok]
        assert [contact["when"] for contact in hubspot.contacts.values()] == times


def test_a_batch_holds_a_hundred_at_most_and_each_key_once(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    with serving(hubspot) as server:
        records = [lead(f"k{number}") for number in range(230)]
        outcomes = open_adapter(server.url("")).send([*records, lead("k0", 2, phone="1")])
        assert all(isinstance(outcome, Ok) for outcome in outcomes)
        assert [len(request.body["inputs"]) for request in asked(server)] == [100, 100, 30]
        assert len(hubspot.contacts) == 230


@pytest.mark.parametrize("traces", [True, False])
def test_errors_of_single_records_in_a_207(
    open_adapter: Open, hubspot: HubSpotStub, traces: bool
) -> None:
    hubspot.traces = traces
    with serving(hubspot) as server:
        outcomes = open_adapter(server.url("")).send([lead("a"), lead("b", email="x@"), lead("c")])
        assert outcomes[1] == Invalid("email", "Email address x@ is invalid")
        assert [type(outcome) for outcome in outcomes] == [Ok, Invalid, Ok]


def test_an_error_that_names_nobody_is_found_by_sending_halves(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.names_nobody = True
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        outcomes = adapter.send([lead("a"), lead("b", email="x@")])
        assert [type(outcome) for outcome in outcomes] == [Ok, Refused]
        assert adapter.send([lead("b", email="x@")]) == [
            Invalid("email", "Email address x@ is invalid")
        ]


def test_a_contact_that_exists_is_changed_by_its_id(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.contacts["77"] = {"email": "a@b.c"}
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        assert adapter.send([lead("a", email="a@b.c")]) == [Conflict("77")]
        again = Record("a", 1, {"email": "a@b.c", "firstname": "A"}, remote_id="77")
        assert [type(outcome) for outcome in adapter.send([again])] == [Ok]
        assert hubspot.contacts["77"] == {"email": "a@b.c", "firstname": "A", "hive_id": "a"}
        assert adapter.send([lead("a", 2)]) == [Ok("77", False)]


@pytest.mark.parametrize("traces", [True, False])
def test_a_contact_that_is_gone_is_stored_anew(
    open_adapter: Open, hubspot: HubSpotStub, traces: bool
) -> None:
    hubspot.traces = traces
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        assert adapter.send([lead("a"), lead("b")]) == [Ok("501", True), Ok("502", True)]
        del hubspot.contacts["501"]  # by a person
        again = [
            Record(key, 2, {"phone": "1"}, remote_id=i) for key, i in (("a", "501"), ("b", "502"))
        ]
        assert adapter.send(again) == [Ok("503", True), Ok("502")]
        assert hubspot.contacts["503"] == {"hive_id": "a", "phone": "1"}
        del hubspot.contacts["503"]
        assert adapter.send([Record("a", 3, {}, remote_id="503")]) == [Ok("504", True)]
        assert not server.trouble


def test_another_contact_has_the_address_of_one_that_is_gone(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.contacts = {"77": {"email": "a@b.c"}, "501": {"hive_id": "b"}}
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        gone, there = (
            Record(key, 2, {"email": "a@b.c"}, remote_id=remote_id)
            for key, remote_id in (("a", "404"), ("b", "501"))
        )
        assert adapter.send([gone]) == [Conflict("77", is_gone=True)]
        assert adapter.send([there]) == [Conflict("77")]
        assert adapter.send([gone, there]) == [Conflict("77", is_gone=True), Conflict("77")]


READ_FAILED = {"status": "error", "category": "INTERNAL_ERROR", "message": "try again"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(b"<html>Sign in</html>"), Retry),
        (Answer({"results": [], "numErrors": 1, "errors": [READ_FAILED]}, 207), Retry),
        (Answer({"policyName": "SECONDLY"}, 429), Throttled),
    ],
)
def test_what_was_not_found_for_certain_is_not_called_deleted(
    open_adapter: Open, answer: Answer, kind: type[Outcome]
) -> None:
    with serving(lambda _: answer) as server:
        adapter = open_adapter(server.url(""))
        gone = [Record(key, 1, {}, deleted=True) for key in ("a", "b")]
        assert [type(outcome) for outcome in adapter.send(gone)] == [kind, kind]
        looked_up = Throttled if kind is Throttled else Unknown
        assert [type(outcome) for outcome in adapter.look_up([lead("a")])] == [looked_up]


def test_deleting_at_a_wrong_address_is_not_done(open_adapter: Open, hubspot: HubSpotStub) -> None:
    hubspot.contacts["501"] = {"hive_id": "a"}
    gone = Record("a", 1, {}, True, "501")
    with serving(hubspot) as server:
        (outcome,) = open_adapter(server.url(""), objects_path="/crm/v9/objects").send([gone])
        assert not isinstance(outcome, Ok)
        assert "501" in hubspot.contacts
    missing = {"status": "error", "category": "OBJECT_NOT_FOUND", "message": "no such object"}
    with serving(lambda _: Answer(missing, 404)) as server:
        adapter = open_adapter(server.url(""))
        assert adapter.send([gone]) == [Ok("501", False)]
        both = adapter.send([gone, Record("b", 1, {}, True, "502")])
        assert [type(outcome) for outcome in both] == [Refused, Refused]


@pytest.mark.parametrize(("policy", "seconds"), [("TEN_SECONDLY_ROLLING", 10.0), ("SECONDLY", 1.0)])
def test_after_a_limit_nothing_more_is_sent(
    open_adapter: Open, hubspot: HubSpotStub, policy: str, seconds: float
) -> None:
    hubspot.limit = policy
    with serving(hubspot) as server:
        outcomes = open_adapter(server.url("")).send([lead(f"k{number}") for number in range(250)])
        assert outcomes == [Throttled(seconds)] * 250
        assert len(server.requests) == 1


NOT_VALID = (
    'Property values were not valid: [{"isValid":false,"message":"Email address x is invalid",'
    '"error":"INVALID_EMAIL","name":"email"}]'
)
NO_TYPE = "Unable to infer object type from: leadz"
NO_KEY = "Property 'hive_id' does not exist"
KEY_GONE = (
    'Property values were not valid: [{"isValid":false,"message":"Property hive_id does not exist",'
    '"error":"PROPERTY_DOESNT_EXIST","name":"hive_id"}]'
)
# These are faults of one record, although they name the property too.
TAKEN = "Cannot set PropertyValueCoordinates{propertyName=hive_id} on 501. 502 already has it."
BAD_KEY = (
    'Property values were not valid: [{"isValid":false,"message":"too long",'
    '"error":"INVALID_LENGTH","name":"hive_id"}]'
)
MISSING_SCOPE = {"category": "MISSING_SCOPES", "message": "scopes: crm.objects"}
CASES: list[tuple[Answer, Outcome]] = [
    (Answer({"policyName": "TEN_SECONDLY_ROLLING", "category": "RATE_LIMITS"}, 429), Throttled(10)),
    (Answer({"policyName": "SECONDLY"}, 429), Throttled(1.0)),
    (Answer({"policyName": "SECONDLY"}, 429, Retry_After="4"), Throttled(4.0)),
    (Answer({"message": "Authentication credentials not found"}, 401),
     Auth("HTTP 401: Authentication credentials not found")),
    (Answer(MISSING_SCOPE, 403), Auth("HTTP 403: scopes: crm.objects")),
    (Answer({}, 423), Retry(2.0, "HTTP 423")),
    (Answer({}, 477, Retry_After="30"), Retry(30.0, "HTTP 477")),
    (Answer({"message": "internal"}, 500), Retry(0.0, "HTTP 500: internal")),
    (Answer(b"<html>", 524), Retry(0.0, "HTTP 524")),
    (Answer({"category": "CONFLICT", "message": "Contact already exists. Existing ID: 12345"}, 409),
     Conflict("12345")),
    (Answer({"category": "VALIDATION_ERROR", "message": NOT_VALID}, 400),
     Invalid("email", "Email address x is invalid")),
    (Answer({"category": "VALIDATION_ERROR", "message": "bad",
             "errors": [{"message": "no such", "in": "phon", "code": "PROPERTY_DOESNT_EXIST"}]},
            400), Invalid("phon", "no such")),
    (Answer({"message": "odd"}, 400), Retry(0.0, "odd")),
    (Answer({"message": "resource not found"}, 404), Auth("HTTP 404: resource not found")),
    (Answer({"message": "retired"}, 410), Auth("HTTP 410: retired")),
    (Answer({"category": "VALIDATION_ERROR", "message": NO_TYPE}, 400),
     Auth(f"HTTP 400: {NO_TYPE}")),
    (Answer({"category": "VALIDATION_ERROR", "message": NO_KEY}, 400), Auth(f"HTTP 400: {NO_KEY}")),
    (Answer({"category": "VALIDATION_ERROR", "message": KEY_GONE}, 400),
     Auth(f"HTTP 400: {KEY_GONE}")),
    (Answer({"category": "VALIDATION_ERROR", "message": TAKEN}, 400), Invalid("", TAKEN)),
    (Answer({"category": "VALIDATION_ERROR", "message": BAD_KEY}, 400),
     Invalid("hive_id", "too long")),
    (Answer(drop=True), Unknown("")),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "outcome"), CASES)
def test_what_an_answer_means(open_adapter: Open, answer: Answer, outcome: Outcome) -> None:
    with serving(lambda _: answer) as server:
        (given,) = open_adapter(server.url("")).send([lead("a")])
        if isinstance(outcome, Unknown):
            assert isinstance(given, Unknown)
        else:
            assert given == outcome


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"status": "error", "message": "resource not found"}, 404),
        Answer({"category": "VALIDATION_ERROR", "message": NO_TYPE}, 400),
    ],
)
def test_a_set_up_that_is_gone_kills_no_records(open_adapter: Open, answer: Answer) -> None:
    """The object type or the property that holds the key: all records would be refused."""
    batches = [
        [lead("a"), lead("b")],
        [Record(key, 1, {}, deleted=True) for key in "ab"],  # looked up first
        [Record(key, 1, {}, True, f"50{key}") for key in "12"],
        [Record(key, 1, {}, remote_id=f"50{key}") for key in "12"],
        [Record(key, 1, {}, False, f"50{key}", should_fill_empty=True) for key in "12"],
    ]
    with serving(lambda _: answer) as server:
        adapter = open_adapter(server.url(""))
        for batch in batches:
            assert [type(outcome) for outcome in adapter.send(batch)] == [Auth, Auth]


@pytest.mark.parametrize("answer", [Answer({}, 477), Answer({"message": "odd"}, 400)])
def test_a_read_that_is_refused_for_now_kills_no_record(open_adapter: Open, answer: Answer) -> None:
    with serving(lambda _: answer) as server:
        record = Record("1", 1, {}, False, "501", should_fill_empty=True)
        (outcome,) = open_adapter(server.url("")).send([record])
        assert isinstance(outcome, Retry)


def test_a_batch_that_is_refused_as_a_whole(open_adapter: Open) -> None:
    answer = Answer({"category": "VALIDATION_ERROR", "message": NOT_VALID}, 400)
    with serving(lambda _: answer) as server:
        outcomes = open_adapter(server.url("")).send([lead("a"), lead("b")])
        assert {type(outcome) for outcome in outcomes} == {Refused}


def test_the_daily_limit_ends_at_midnight_of_the_account(
    open_adapter: Open, time_machine: Any
) -> None:
    time_machine.move_to("2026-03-01 15:30:00+00:00")  # 23:30 in Shanghai
    answer = Answer({"policyName": "DAILY", "message": "You have reached your daily limit."}, 429)
    with serving(lambda _: answer) as server:
        adapter = open_adapter(server.url(""), time_zone="Asia/Shanghai")
        (outcome, other) = adapter.send([lead("a"), lead("b")])
        assert isinstance(outcome, Throttled)
        assert outcome.after == pytest.approx(1800, abs=60)
        assert other == outcome


def test_the_test_button(open_adapter: Open, hubspot: HubSpotStub) -> None:
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        assert adapter.check(["firstname"]).kind == "ok"
        assert adapter.check(["fristname"]).message == (
            "HubSpot has no field fristname. Did you mean firstname?"
        )
        assert adapter.check(["createdate"]).message == (
            "The field createdate of HubSpot cannot be written."
        )
        assert open_adapter(server.url(""), token="wrong").check().kind == "credentials"
        not_unique = open_adapter(server.url(""), id_property="phone").check()
        assert (not_unique.kind, "unique" in not_unique.message) == ("settings", True)
        assert "hush" not in repr([adapter, adapter.credentials])
    assert adapter.check().kind == "unreachable"


def test_the_api_version_of_a_date_is_a_setting(open_adapter: Open, hubspot: HubSpotStub) -> None:
    hubspot.objects, hubspot.properties = "/crm/objects/2026-03", "/crm/properties/2026-03"
    with serving(hubspot) as server:
        adapter = open_adapter(
            server.url(""), objects_path="/crm/objects/2026-03",
            properties_path="/crm/properties/2026-03",
        )  # fmt: skip
        assert adapter.send([lead("a")]) == [Ok("501", True)]
        assert adapter.check().kind == "ok"
    for path in (".example.com/x", "@example.com/x", ":8443/x", "crm"):
        for name in ("objects_path", "properties_path"):
            with pytest.raises(InvalidInput, match="Begin the path with /") as refused:
                open_adapter("https://api.hubapi.com", **{name: path})
            assert refused.value.field == name
    with pytest.raises(InvalidInput, match="no time zone"):
        open_adapter("http://x", time_zone="Nowhere/City")


def test_fills_in_what_is_empty_and_takes_its_key_off_what_people_made(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.contacts = {"77": {"firstname": "boss", "phone": ""}, "78": {"firstname": "aide"}}
    with serving(hubspot) as server:
        adapter = open_adapter(server.url(""))
        filled = [
            replace(lead(key, phone="138"), remote_id=remote_id, should_fill_empty=True)
            for key, remote_id in (("a", "77"), ("b", "404"))
        ]
        assert adapter.send([*filled, lead("c")]) == [Ok("77"), Ok("502", True), Ok("501", True)]
        assert hubspot.contacts["77"] == {"firstname": "boss", "phone": "138", "hive_id": "a"}
        gone = [
            Record(key, 2, {}, True, remote_id, is_adopted=True)
            for key, remote_id in (("a", "77"), ("z", "77"), ("b", "404"))
        ]
        own = Record("c", 2, {}, True, "501")
        assert all(isinstance(outcome, Ok) for outcome in adapter.send([*gone, own]))
    assert hubspot.contacts["77"] == {"firstname": "boss", "phone": "138", "hive_id": ""}
    assert set(hubspot.contacts) == {"77", "78", "502"}


def test_a_contact_that_people_merged_into_another_one_holds_up_no_other(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.contacts = {"77": {"firstname": "boss", "phone": ""}, "78": {"firstname": "aide"}}
    hubspot.merged = {"70": "77"}
    with serving(hubspot) as server:
        filled = [
            replace(lead(key, phone="138"), remote_id=remote_id, should_fill_empty=True)
            for key, remote_id in (("a", "70"), ("b", "78"), ("c", "404"))
        ]
        outcomes = open_adapter(server.url("")).send(filled)
    assert all(isinstance(outcome, Ok) for outcome in outcomes), outcomes
    assert hubspot.contacts["77"] == {"firstname": "boss", "phone": "138", "hive_id": "a"}
    assert hubspot.contacts["78"] == {"firstname": "aide", "phone": "138", "hive_id": "b"}


def test_a_contact_of_ours_that_people_merged_into_another_one_is_theirs(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.contacts = {"77": {"firstname": "boss"}, "502": {"hive_id": "b"}}
    hubspot.merged = {"501": "77"}
    known = [
        Record(key, 2, {"phone": "138"}, remote_id=remote_id)
        for key, remote_id in (("a", "501"), ("b", "502"))
    ]
    with serving(hubspot) as server:
        outcomes = open_adapter(server.url("")).send(known)
    assert outcomes == [Conflict("77", is_gone=True), Ok("502")]


def test_the_deletion_of_a_lead_leaves_the_contact_into_which_people_merged_its_own(
    open_adapter: Open, hubspot: HubSpotStub
) -> None:
    hubspot.contacts = {
        "77": {"firstname": "boss", "hive_id": "a"},
        "78": {"hive_id": "z"},
        "503": {"hive_id": "c"},
    }
    hubspot.merged = {"501": "77", "502": "78"}
    deleted = [
        Record(key, 2, {}, True, remote_id)
        for key, remote_id in (("a", "501"), ("b", "502"), ("c", "503"), ("d", "504"))
    ]
    with serving(hubspot) as server:
        outcomes = open_adapter(server.url("")).send(deleted)
    assert all(isinstance(outcome, Ok) for outcome in outcomes), outcomes
    assert hubspot.contacts == {"77": {"firstname": "boss", "hive_id": ""}, "78": {"hive_id": "z"}}
