"""The adapter for any HTTP/JSON interface, against servers on real sockets."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from crmsync.adapters.base import Record, Stored, TooManyCalls
from crmsync.adapters.client import HttpClient, send_only_while
from crmsync.adapters.http.adapter import HttpAdapter
from crmsync.adapters.http.settings import HttpSettings
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
from msgplatform.core.errors import InvalidInput, Unavailable
from tests.support.http_sinks import refusing_port
from tests.support.json_stub import Answer, Asked, asked, routed, serving
from tests.support.lead_store import LeadStore, rest

TOKEN = {"token": "hush-hush"}
Open = Callable[..., HttpAdapter]


@pytest.fixture
def open_adapter(settings: Any) -> Iterator[Open]:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    opened: list[HttpAdapter] = []

    def open_one(url: str, **given: Any) -> HttpAdapter:
        opened.append(HttpAdapter({"url": url, **given}, TOKEN))
        return opened[-1]

    yield open_one
    for adapter in opened:
        adapter.close()


def lead(key: str, version: int = 1, **fields: Any) -> Record:
    return Record(key, version, {"name": f"name {key}", **fields})


def test_stores_changes_deletes_and_reads_back(open_adapter: Open) -> None:
    store = LeadStore()
    with serving(store) as server:
        url = server.url("/leads")
        adapter = open_adapter(f"{url}/{{key}}", **rest(url))
        assert adapter.send([lead("a/ü", phone="138"), lead("b")]) == [
            Ok("r-a%2F%C3%BC", True),
            Ok("r-b", True),
        ]
        assert store.leads["a%2F%C3%BC"] == {"name": "name a/ü", "phone": "138", "v": 1,
                                             "by": "lp-a/ü"}  # fmt: skip
        assert store.leads["b"] == {"name": "name b", "v": 1, "by": "lp-b"}  # no phone: left out
        assert adapter.send([lead("b", 2, phone=None)]) == [Ok("r-b", False)]
        assert store.leads["b"]["phone"] is None
        assert adapter.read(["b", "c"]) == {"b": Stored("r-b", store.leads["b"], False, 2)}
        assert adapter.look_up([lead("b", 2), lead("b", 3), lead("c")]) == [
            Ok("r-b", False), Conflict("r-b"), Retry(0.0, "The CRM does not hold the record."),
        ]  # fmt: skip
        gone = Record("b", 3, {}, deleted=True)
        assert [type(outcome) for outcome in adapter.send([gone])] == [Ok]
        assert adapter.send([gone]) == [Ok("", False)]  # it was gone already
        assert "b" not in store.leads
        assert not server.trouble


def test_a_compressed_answer_is_read(open_adapter: Open) -> None:
    """Nobody asks for compression; some servers compress nevertheless."""

    def refuses(request: Asked) -> Answer:
        body = gzip.compress(b'{"message": "The phone is wrong."}')
        return Answer(body, 422, Content_Encoding="gzip")

    with serving(refuses) as server:
        (outcome,) = open_adapter(server.url()).send([lead("a")])
    assert "The phone is wrong." in str(outcome)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(b'\xef\xbb\xbf{"code": 0, "id": 7}'), Ok("7")),
        (Answer('{"code": 0, "id": "张"}'.encode(), Content_Type="a/b; charset=gbk"), Ok("张")),
        (Answer('{"code": 1, "words": "手机号重复"}'.encode("gbk"),
                Content_Type="application/json; charset=GBK"), Invalid("", "手机号重复")),
    ],
)  # fmt: skip
def test_an_answer_with_a_mark_or_in_its_charset_is_read(
    open_adapter: Open, answer: Answer, outcome: Outcome
) -> None:
    rules = {"code": "code", "kinds": {"1": "invalid"}, "message": "words", "remote_id": "id"}
    with serving(lambda _: answer) as server:
        assert open_adapter(server.url(), answer=rules).send([lead("a")]) == [outcome]


def test_calls_are_made_at_once_on_kept_connections(open_adapter: Open) -> None:
    with serving(LeadStore()) as server:
        url = server.url("/leads")
        adapter = open_adapter(f"{url}/{{key}}", **rest(url), concurrency=3)
        records = [lead(str(number)) for number in range(60)]
        assert adapter.send(records) == [Ok(f"r-{number}", True) for number in range(60)]
        assert adapter.calls(records) == 60
        assert server.connections <= 3


def test_each_call_has_a_deadline_of_its_own(open_adapter: Open) -> None:
    """However many of them wait for one of the few that are made at once."""

    def slowly(request: Asked) -> Answer:
        time.sleep(1.5)
        return Answer({})

    with serving(slowly) as server:
        adapter = open_adapter(server.url(), concurrency=1, timeout=15, batch_size=11)
        assert adapter.send([lead(key) for key in "abcdefghijk"]) == [Ok("")] * 11


def test_no_call_takes_longer_than_the_handler_counts_on(settings: Any) -> None:
    timeouts = []
    for lease, timeout in ((3600, 300), (100, 300), (3600, 7)):
        settings.CRM_LEASE_SECONDS = lease
        client = HttpClient(HttpSettings(url="http://127.0.0.1:1/"), timeout=timeout)
        timeouts.append(client.timeout)
        client.close()
    assert timeouts == [60, 25, 7]


def test_nothing_more_is_sent_to_a_crm_that_hangs(open_adapter: Open) -> None:
    released = threading.Event()

    def hang(request: Asked) -> Answer:
        released.wait(60)
        return Answer({})

    with serving(hang) as server:
        adapter = open_adapter(server.url(), concurrency=1, timeout=2, batch_size=50)
        outcomes = [type(outcome) for outcome in adapter.send([lead(str(n)) for n in range(50)])]
        released.set()
        sent = outcomes.count(Unknown)
        assert 1 <= sent < 5
        assert outcomes == [Unknown] * sent + [Retry] * (50 - sent)


def test_nothing_more_is_sent_once_it_is_somebody_elses(open_adapter: Open) -> None:
    with serving(lambda _: Answer({})) as server:
        adapter = open_adapter(server.url(), concurrency=1, batch_size=3)
        with send_only_while(lambda: len(server.requests) < 2):
            outcomes = adapter.send([lead(key) for key in "abc"])
        assert outcomes == [Ok(""), Ok(""), Retry(0.0, "not sent")]
        assert len(server.requests) == 2


STATUSES: list[tuple[Answer, Outcome]] = [
    (Answer({"message": "bad token"}, 401), Auth("HTTP 401: bad token")),
    (Answer({"message": "not yours"}, 403), Auth("HTTP 403: not yours")),
    (Answer({"message": "not paid"}, 402), Auth("HTTP 402: not paid")),
    (Answer({}, 429, Retry_After="17"), Throttled(17.0)),
    (Answer({}, 429), Throttled(10.0)),
    (Answer({"error": {"message": "bad mail"}}, 422), Invalid("", "HTTP 422: bad mail")),
    (Answer({"message": "dup", "id": 7}, 409), Conflict("7")),
    (Answer({"message": "busy"}, 423), Retry(2.0, "HTTP 423: busy")),
    (Answer({"message": "oops"}, 500), Unknown("HTTP 500: oops")),
    (Answer(b"<html>", 302), Auth("HTTP 302. The CRM's address has changed; "
                                  "redirects are not followed.")),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "outcome"), STATUSES)
def test_what_a_status_means(open_adapter: Open, answer: Answer, outcome: Outcome) -> None:
    with serving(lambda _: answer) as server:
        adapter = open_adapter(server.url(), answer={"existing_id": "id"})
        assert adapter.send([lead("a")]) == [outcome]


def test_an_error_of_the_server_is_repeated_only_where_it_makes_no_second_record(
    open_adapter: Open,
) -> None:
    with serving(lambda _: Answer({}, 503, Retry_After="9")) as server:
        once = open_adapter(server.url())
        assert [type(outcome) for outcome in once.send([lead("a")])] == [Unknown]
        upsert = open_adapter(server.url(), is_upsert=True)
        assert upsert.send([lead("a")]) == [Retry(9.0, "HTTP 503")]


def test_no_answer_is_unknown_and_no_connection_a_retry(open_adapter: Open) -> None:
    with serving(lambda _: Answer(drop=True)) as server:
        assert [type(o) for o in open_adapter(server.url()).send([lead("a")])] == [Unknown]
        assert len(server.requests) >= 1
    nobody = open_adapter(f"http://127.0.0.1:{refusing_port()}/")
    assert [type(outcome) for outcome in nobody.send([lead("a")])] == [Retry]


def test_the_address_guard_holds(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    adapter = HttpAdapter({"url": "http://127.0.0.1:1/", "test": {"url": "http://[::1]/"}}, {})
    (outcome,) = adapter.send([lead("a")])
    assert isinstance(outcome, Auth)
    assert "a loopback address" in outcome.message
    assert adapter.check().kind == "settings"
    adapter.close()


# -- CRMs that answer 200 and mean an error ------------------------------------------------------
FXIAOKE = {
    "body": {"corpAccessToken": "{secret.token}", "data": "{fields}"},
    "answer": {
        "code": "errorCode", "message": "errorMessage", "remote_id": "dataId",
        "kinds": {"20016": "auth", "30001": "throttled", "320002500": "invalid", "9": "conflict"},
        "existing_id": "dataId", "throttled_seconds": 20,
    },
}  # fmt: skip

CODES: list[tuple[Answer, Outcome]] = [
    (Answer({"errorCode": 0, "dataId": "5f"}), Ok("5f")),
    (Answer({"errorCode": 20016, "errorMessage": "token expired"}), Auth("token expired")),
    (Answer({"errorCode": 30001}), Throttled(20.0)),
    (Answer({"errorCode": 320002500, "errorMessage": "手机号 wrong"}), Invalid("", "手机号 wrong")),
    (Answer({"errorCode": 9, "dataId": "old"}), Conflict("old")),
    (Answer({"errorCode": 777}), Retry(0.0, "HTTP 200, code 777")),
    (Answer(b"<html>log in</html>"), Unknown("HTTP 200, without errorCode: is this the CRM?")),
    (Answer({"errorCode": 20016, "errorMessage": "no"}, 400), Auth("no")),
]


@pytest.mark.parametrize(("answer", "outcome"), CODES)
def test_what_a_code_in_the_body_means(
    open_adapter: Open, answer: Answer, outcome: Outcome
) -> None:
    with serving(lambda _: answer) as server:
        assert open_adapter(server.url(), **FXIAOKE).send([lead("a")]) == [outcome]
        assert asked(server)[0].body == {"corpAccessToken": "hush-hush", "data": {"name": "name a"}}


@pytest.mark.parametrize("status", [200, 503])
def test_a_code_of_true_or_false_is_named_as_json_does(open_adapter: Open, status: int) -> None:
    rules = {"code": "success", "ok": [True], "kinds": {"false": "invalid"}}
    with serving(lambda _: Answer({"success": False}, status)) as server:
        adapter = open_adapter(server.url(), answer=rules)
        assert adapter.send([lead("a")]) == [Invalid("", f"HTTP {status}, code false")]


PAGE = b"<html>log in</html>"


@pytest.mark.parametrize(
    ("rules", "answer", "kind"),
    [
        ({}, Answer(PAGE), Unknown),
        ({"remote_id": "id"}, Answer(PAGE), Unknown),
        ({"failures": "failed"}, Answer(PAGE), Unknown),
        ({"statuses": {"200": "ok"}}, Answer(b"stored"), Ok),  # a person says so
        ({"remote_id": "id"}, Answer({"error": "who are you"}), Unknown),
        ({"remote_id": "id", "code": "code"}, Answer({"code": 0}), Ok),
        ({"remote_id": "id"}, Answer(b" "), Ok),
        ({"remote_id": "id"}, Answer(status=204), Ok),
        ({}, Answer(None), Ok),
    ],
)
def test_a_page_of_somebody_else_confirms_nothing(
    open_adapter: Open, rules: dict[str, Any], answer: Answer, kind: type[Outcome]
) -> None:
    with serving(lambda _: answer) as server:
        adapter = open_adapter(server.url(), answer=rules, test={"url": server.url()})
        assert [type(outcome) for outcome in adapter.send([lead("a")])] == [kind]
        if answer.body == PAGE:
            assert adapter.check().kind == "unreachable"


def test_an_object_within_a_text_is_written_as_json(open_adapter: Open) -> None:
    with serving(lambda _: Answer({})) as server:
        body = {"note": "at {field.address}", "address": "{field.address}"}
        address = {"city": "武汉", "ok": True, "zip": None}
        open_adapter(server.url(), body=body).send([lead("a", address=address)])
        note = 'at {"city":"武汉","ok":true,"zip":null}'
        assert asked(server)[0].body == {"note": note, "address": address}


def test_headers_and_names_in_a_body_are_those_of_each_record(open_adapter: Open) -> None:
    with serving(lambda _: Answer({})) as server:
        headers = {"X-Record": "{key}-{version}", "X-Of": "{secret.token} {field.of}"}
        adapter = open_adapter(server.url(), headers=headers, body={"{key}": "{field.name}"})
        assert adapter.send([lead("a", of="1\r\n2"), lead("b", 2, of="é")]) == [Ok(""), Ok("")]
        requests = {each.headers["x-record"]: each for each in asked(server)}
        assert {key: (each.headers["x-of"], each.body) for key, each in requests.items()} == {
            "a-1": ("hush-hush 1%0D%0A2", {"a": "name a"}),
            "b-2": ("hush-hush é", {"b": "name b"}),
        }


def test_an_id_that_is_known_need_not_be_answered(open_adapter: Open) -> None:
    with serving(lambda _: Answer({"done": True})) as server:
        adapter = open_adapter(server.url(), answer={"remote_id": "id"})
        assert adapter.send([Record("a", 2, {}, remote_id="7")]) == [Ok("7")]
        assert adapter.send([Record("b", 2, {}, deleted=True)]) == [Ok("")]


NOT_READ: list[tuple[Answer, type[Outcome], type[Outcome]]] = [
    # the answer; what a look-up says; what a deletion says
    (Answer({"errorCode": 20016, "errorMessage": "token expired"}), Auth, Auth),
    (Answer({"errorCode": 30001}), Throttled, Throttled),
    (Answer({"errorCode": 777}), Unknown, Retry),
    (Answer(PAGE), Unknown, Retry),
    (Answer(b""), Unknown, Retry),
    (Answer({"data": None}), Unknown, Retry),
    (Answer({"errorCode": 404}), Retry, Ok),
    (Answer({"errorCode": 404}, 400), Retry, Ok),
    (Answer({"errorCode": 0, "data": {"name": "a"}}), Conflict, Invalid),  # there, without an id
    (Answer({"errorCode": 0, "data": None}), Retry, Ok),
]


@pytest.mark.parametrize(("answer", "looked_up", "deleted"), NOT_READ)
def test_what_an_answer_without_the_record_says(
    open_adapter: Open, answer: Answer, looked_up: type[Outcome], deleted: type[Outcome]
) -> None:
    """Only what the CRM certainly does not hold is sent again, or counts as deleted."""
    with serving(lambda _: answer) as server:
        url = server.url("/leads/{remote_id}")
        adapter = open_adapter(
            server.url(), read={"url": server.url("/{key}"), "record": "data", "missing": [404]},
            delete={"method": "DELETE", "url": url}, **FXIAOKE,
        )  # fmt: skip
        assert [type(outcome) for outcome in adapter.look_up([lead("a")])] == [looked_up]
        gone = Record("a", 2, {}, deleted=True)
        assert [type(outcome) for outcome in adapter.send([gone])] == [deleted]


def test_texts_of_a_crm_without_types_are_read(open_adapter: Open) -> None:
    body: dict[str, Any] = {"id": "8", "gone": "N", "v": "2", "lead": {"name": "edited since"}}
    with serving(lambda _: Answer(body)) as server:
        read = {"url": server.url("/{key}"), "record": "lead", "remote_id": "id",
                "version": "v", "deleted": "gone"}  # fmt: skip
        adapter = open_adapter(server.url(), read=read)
        assert adapter.read(["a"]) == {"a": Stored("8", body["lead"], False, 2)}
        assert adapter.look_up([lead("a", 1)]) == [Ok("8", False)]


def test_an_error_is_not_taken_for_the_record(open_adapter: Open) -> None:
    with serving(lambda _: Answer({"errorCode": 30001})) as server:
        adapter = open_adapter(server.url(), read={"url": server.url("/{key}")}, **FXIAOKE)
        with pytest.raises(TooManyCalls) as error:
            adapter.read(["a"])
        assert error.value.after == 20


def test_without_a_code_a_page_is_no_missing_record(open_adapter: Open) -> None:
    answers = [Answer(PAGE), Answer({"lead": None}), Answer(status=204)]
    with serving(lambda _: answers.pop(0)) as server:
        read = {"url": server.url("/{key}"), "record": "lead"}
        adapter = open_adapter(server.url(), read=read)
        with pytest.raises(Unavailable, match="no JSON"):
            adapter.read(["a"])
        assert adapter.read(["a"]) == adapter.read(["a"]) == {}


def test_a_status_that_means_something_else_is_no_missing_record(open_adapter: Open) -> None:
    with serving(lambda _: Answer({}, 404)) as server:
        read = {"url": server.url("/{key}")}
        adapter = open_adapter(server.url(), read=read, answer={"statuses": {"404": "auth"}})
        with pytest.raises(InvalidInput):
            adapter.read(["a"])


def test_failures_listed_by_a_field(open_adapter: Open) -> None:
    """微伴助手: errcode 0, and those that failed by phone."""

    def answer(request: Asked) -> Answer:
        fails = {"139": "手机号格式不正确"} if len(request.body["leads"]) > 1 else {}
        return Answer({"errcode": 0, "errmsg": "ok", "fail_list": fails})

    with serving(answer) as server:
        adapter = open_adapter(
            server.url(), body={"leads": "{records}"}, record="{fields}", records_per_call=200,
            answer={"code": "errcode", "failures": "fail_list", "failures_by": "phone",
                    "kinds": {"10053": "throttled"}},
        )  # fmt: skip
        outcomes = adapter.send([lead("a", phone="138"), lead("b", phone="139")])
        assert outcomes == [Ok(""), Invalid("phone", "手机号格式不正确")]
        assert len(server.requests) == 1


@pytest.mark.parametrize("fails", [{"139": "bad number"}, {"+86139": None}])
def test_a_failure_of_which_nobody_knows_whose_it_is(
    open_adapter: Open, fails: dict[str, Any]
) -> None:
    """Nobody is confirmed who may have been refused; what may be stored is not sent twice."""
    given = {
        "body": {"leads": "{records}"}, "record": "{fields}", "records_per_call": 200,
        "answer": {"failures": "fail_list", "failures_by": "phone"},
    }  # fmt: skip
    both = [lead("a", phone="+86138"), lead("b", phone="+86139")]
    with serving(lambda _: Answer({"fail_list": fails})) as server:
        upsert = open_adapter(server.url(), is_upsert=True, **given)
        assert {type(outcome) for outcome in upsert.send(both)} == {Refused}
        assert upsert.send(both[1:]) == [Invalid("", fails.get("139") or "HTTP 200")]
        once = open_adapter(server.url(), **given)
        assert {type(outcome) for outcome in once.send(both)} == {Unknown}


def test_a_result_for_each_record_in_order(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        results = [
            {"status": "success", "details": {"id": str(n)}}
            if item["id"] != "b"
            else {"status": "INVALID_DATA", "details": {"api_name": "Company"}, "message": "bad"}
            for n, item in enumerate(request.body["data"])
        ]
        return Answer({"data": results[: 1 if len(results) == 4 else None]})

    result = {
        "code": "status", "ok": ["success"], "kinds": {"INVALID_DATA": "invalid"},
        "field": "details.api_name", "message": "message", "remote_id": "details.id",
    }  # fmt: skip
    with serving(answer) as server:
        adapter = open_adapter(
            server.url(), body={"data": "{records}"}, records_per_call=100,
            answer={"results": "data", "result": result},
        )  # fmt: skip
        assert adapter.send([lead("a"), lead("b"), lead("c")]) == [
            Ok("0"), Invalid("Company", "bad"), Ok("2"),
        ]  # fmt: skip
        short = adapter.send([lead(key) for key in "aceg"])  # a list of another length says nothing
        assert {type(outcome) for outcome in short} == {Unknown}
        upsert = open_adapter(
            server.url(), body={"data": "{records}"}, records_per_call=100, is_upsert=True,
            answer={"results": "data", "result": result},
        )  # fmt: skip
        short = upsert.send([lead(key) for key in "aceg"])  # its halves have a result for each
        assert {type(outcome) for outcome in short} == {Refused}


def test_an_error_that_all_results_have_is_of_the_call(open_adapter: Open) -> None:
    """As where one record's trigger undoes the transaction of all: halves show whose it is."""

    def answer(request: Asked) -> Answer:
        is_bad = any(item["id"] == "b" for item in request.body)
        word = {"status": "INVALID_DATA", "message": "trigger"} if is_bad else {"status": "success"}
        return Answer({"data": [word] * len(request.body)})

    result = {"code": "status", "ok": ["success"], "kinds": {"INVALID_DATA": "invalid"},
              "message": "message"}  # fmt: skip
    with serving(answer) as server:
        adapter = open_adapter(
            server.url(), body="{records}", records_per_call=10,
            answer={"results": "data", "result": result},
        )  # fmt: skip
        assert adapter.send([lead("a"), lead("b"), lead("c")]) == [Refused("trigger")] * 3
        assert adapter.send([lead("a")]) == [Ok("")]
        assert adapter.send([lead("b")]) == [Invalid("", "trigger")]


def test_a_batch_that_is_refused_says_so_and_the_record_alone_is_invalid(
    open_adapter: Open,
) -> None:
    def answer(request: Asked) -> Answer:
        bad = any(item["id"] == "b" for item in request.body)
        return Answer({"message": "row b is bad"}, 400) if bad else Answer({})

    with serving(answer) as server:
        adapter = open_adapter(server.url(), body="{records}", records_per_call=10)
        refused = Refused("HTTP 400: row b is bad")
        assert adapter.send([lead("a"), lead("b")]) == [refused, refused]
        assert adapter.send([lead("b")]) == [Invalid("", "HTTP 400: row b is bad")]
        assert adapter.send([lead("a")]) == [Ok("")]


def test_a_value_that_is_no_text_does_not_stop_the_others(open_adapter: Open) -> None:
    with serving(lambda _: Answer({})) as server:
        outcomes = open_adapter(server.url()).send([lead("a", x="\ud800"), lead("b")])
        assert [type(outcome) for outcome in outcomes] == [Invalid, Ok]


def test_the_other_record_is_changed_after_a_conflict(open_adapter: Open) -> None:
    routes = {
        ("POST", "/leads"): lambda _: Answer({"id": 7}, 409),
        ("PATCH", "/leads/7"): lambda r: Answer(r.body),
    }
    with serving(routed(routes)) as server:
        adapter = open_adapter(
            server.url("/leads"), answer={"existing_id": "id", "remote_id": "id"},
            update={"method": "PATCH", "url": server.url("/leads/{remote_id}"),
                    "body": {"id": "{remote_id}", "name": "{field.name}"}},
        )  # fmt: skip
        assert adapter.send([lead("a")]) == [Conflict("7")]
        again = Record("a", 1, {"name": "A"}, remote_id="7")
        assert adapter.send([again]) == [Ok("7")]


def by_id(url: str) -> dict[str, Any]:
    """Calls of a CRM that gives ids of its own."""
    return {
        "answer": {"remote_id": "id"},
        "update": {"method": "PATCH", "url": f"{url}/{{remote_id}}", "body": "{record}"},
        "delete": {"method": "DELETE", "url": f"{url}/{{remote_id}}"},
    }


def test_a_record_that_is_gone_is_stored_anew(open_adapter: Open) -> None:
    routes = {
        ("PATCH", "/leads/7"): lambda r: Answer({"id": 7}),
        ("PATCH", "/leads/8"): lambda r: Answer({"message": "gone"}, 404),
        ("POST", "/leads"): lambda r: Answer({"id": 9}, 201),
    }
    with serving(routed(routes)) as server:
        url = server.url("/leads")
        adapter = open_adapter(url, **by_id(url))
        known = [Record(key, 2, {}, remote_id=i) for key, i in (("a", "7"), ("b", "8"))]
        assert adapter.send(known) == [Ok("7"), Ok("9")]


def test_another_record_has_the_values_of_one_that_is_gone(open_adapter: Open) -> None:
    routes = {
        ("PATCH", "/leads/7"): lambda r: Answer({"id": 9}, 409),
        ("PATCH", "/leads/8"): lambda r: Answer({"message": "gone"}, 404),
        ("POST", "/leads"): lambda r: Answer({"id": 9}, 409),
    }
    with serving(routed(routes)) as server:
        url = server.url("/leads")
        calls = by_id(url) | {"answer": {"remote_id": "id", "existing_id": "id"}}
        known = [Record(key, 2, {}, remote_id=i) for key, i in (("a", "7"), ("b", "8"))]
        outcomes = open_adapter(url, **calls).send(known)
        assert outcomes == [Conflict("9"), Conflict("9", is_gone=True)]


READS: list[tuple[Answer, type[Outcome]]] = [
    (Answer({}, 404), Ok),
    (Answer({"id": 8, "gone": True}), Ok),
    (Answer({"id": 8, "gone": "1"}), Ok),
    (Answer({"id": 8, "gone": "2026-11-20 08:00:00"}), Ok),
    (Answer({"id": 8, "gone": "0"}), Auth),
    (Answer({"id": 8, "gone": "False"}), Auth),
    (Answer({"id": 8}), Auth),  # it is there: the address of the other call is wrong
    (Answer({"name": "without its id"}), Auth),
    (Answer({"id": 9}), Conflict),  # it is there under another id
    (Answer({}, 401), Auth),
    (Answer({}, 400), Auth),
    (Answer({}, 429), Throttled),
    (Answer({}, 503), Retry),
    (Answer(PAGE), Retry),
]


@pytest.mark.parametrize(("held", "kind"), READS)
@pytest.mark.parametrize("deleted", [False, True])
def test_a_record_that_was_not_found_is_read_before_it_counts_as_gone(
    open_adapter: Open, held: Answer, kind: type[Outcome], deleted: bool
) -> None:
    stored: list[str] = []

    def answer(request: Asked) -> Answer:
        if request.method == "GET":
            return held
        if request.method == "POST":
            stored.append(request.path)
            return Answer({"id": 11}, 201)
        return Answer({"message": "no such page"}, 404)

    with serving(answer) as server:
        url = server.url("/leads")
        read = {"url": server.url("/keys/{key}"), "remote_id": "id", "deleted": "gone"}
        adapter = open_adapter(url, read=read, **by_id(url))
        (outcome,) = adapter.send([Record("a", 2, {}, deleted, "8")])
        assert isinstance(outcome, kind)
        assert stored == (["/leads"] if kind is Ok and not deleted else [])
        if isinstance(outcome, Conflict):
            assert outcome.existing_id == "9"


def test_an_upsert_by_key_needs_no_reading_first(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        return Answer({"id": 8}) if request.method == "POST" else Answer({}, 404)

    with serving(answer) as server:
        url = server.url("/leads")
        read = {"url": server.url("/keys/{key}"), "remote_id": "id"}
        adapter = open_adapter(url, read=read, is_upsert=True, **by_id(url))
        assert adapter.send([Record("a", 2, {}, remote_id="8")]) == [Ok("8")]
        assert [each.method for each in asked(server)] == ["PATCH", "POST"]


def test_nothing_is_deleted_without_the_id_that_the_call_needs(open_adapter: Open) -> None:
    held = {"a": 7}
    deleted: list[str] = []

    def answer(request: Asked) -> Answer:
        key = request.path.removeprefix("/keys/")
        if request.method == "DELETE":
            deleted.append(request.path)
            return Answer(status=204)
        if key == "busy":
            return Answer({}, 503)
        return Answer({"id": held[key]}) if key in held else Answer({}, 404)

    gone = [Record(key, 2, {}, deleted=True) for key in ("a", "never", "busy")]
    with serving(answer) as server:
        calls = by_id(server.url("/leads"))
        blind = open_adapter(server.url("/leads"), **calls)
        assert [type(outcome) for outcome in blind.send(gone)] == [Invalid, Invalid, Invalid]
        assert deleted == []
        read = {"url": server.url("/keys/{key}"), "remote_id": "id"}
        adapter = open_adapter(server.url("/leads"), read=read, **calls)
        assert adapter.send(gone[:2]) == [Ok("7"), Ok("", False)]
        assert deleted == ["/leads/7"]
        assert [type(outcome) for outcome in adapter.send(gone[2:])] == [Retry]
        named = Record("b", 2, {}, deleted=True, remote_id="8")
        assert [type(outcome) for outcome in blind.send([named])] == [Ok]
        assert deleted == ["/leads/7", "/leads/8"]


UNREADABLE = "The CRM refuses the request: HTTP 422: odd"
FORBIDDEN = Auth("The CRM refuses the credentials: HTTP 403: odd", of_record=True)
MOVED = Auth("HTTP 405: odd: is this the right address?")


@pytest.mark.parametrize(
    ("status", "together", "alone"),
    [
        (422, Refused(UNREADABLE), Invalid("", UNREADABLE)),
        (403, FORBIDDEN, FORBIDDEN),
        (405, MOVED, MOVED),
    ],
)
@pytest.mark.parametrize(
    "records",
    [
        [Record(key, 2, {}, deleted=True) for key in "abc"],
        [Record(key, 1, {"name": key}, False, key, should_fill_empty=True) for key in "abc"],
    ],
)
def test_a_record_that_may_not_be_read_is_no_other_records(
    open_adapter: Open, records: list[Record], status: int, together: Outcome, alone: Outcome
) -> None:
    def answer(request: Asked) -> Answer:
        key = request.path.rpartition("/")[2]
        if request.method == "GET" and key == "b":
            return Answer({"message": "odd"}, status)
        return Answer({"id": key, "name": ""})

    with serving(answer) as server:
        adapter = open_adapter(
            server.url("/leads"), **by_id(server.url("/leads")), test={"url": server.url("/me")},
            read={"url": server.url("/keys/{key}"), "remote_id": "id"},
            read_by_id={"url": server.url("/leads/{remote_id}")},
        )  # fmt: skip
        assert adapter.send(records) == [together] * 3
        assert [adapter.send([record])[0] for record in records] == [Ok("a"), alone, Ok("c")]


def test_a_record_that_is_gone_and_may_not_be_read_holds_up_no_other(open_adapter: Open) -> None:
    def answer(request: Asked) -> Answer:
        if request.method != "GET":
            return Answer({}, 404 if request.method == "PATCH" else 201)
        return Answer({"message": "odd"}, 422 if request.path == "/keys/b" else 404)

    records = [Record(key, 2, {}, remote_id=key) for key in "abc"]
    for test in ({"url": "/me"}, None):
        with serving(answer) as server:
            adapter = open_adapter(
                server.url("/leads"), **by_id(server.url("/leads")),
                read={"url": server.url("/keys/{key}"), "remote_id": "id"},
                **({"test": {"url": server.url(test["url"])}} if test else {}),
            )  # fmt: skip
            assert adapter.send(records) == [Refused(UNREADABLE)] * 3
            (alone,) = adapter.send(records[1:2])
            assert isinstance(alone, Auth)
            assert alone.of_record == bool(test)


@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize(
    ("path", "given", "kind"),
    [
        ("/leads", {}, Auth),  # the address is wrong: no record dies of it
        ("/leads", {"answer": {"statuses": {"404": "invalid", "410": "invalid"}}}, Invalid),
        ("/leads", {"answer": {"code": "code", "kinds": {"7": "invalid"}}}, Invalid),
        ("/accounts/{field.account}/leads", {}, Invalid),
    ],
)
def test_an_address_that_does_not_exist(
    open_adapter: Open, path: str, given: dict[str, Any], kind: type[Outcome], status: int
) -> None:
    with serving(lambda _: Answer({"code": 7, "message": "not found"}, status)) as server:
        adapter = open_adapter(server.url(path), **given)
        (outcome,) = adapter.send([lead("a", account="x")])
        assert isinstance(outcome, kind)


@pytest.mark.parametrize("value", ["..", ".", "", None, "x/../y", "..\\x"])
def test_no_value_leads_to_another_resource(open_adapter: Open, value: str | None) -> None:
    """Servers drop an empty part of a path, and resolve dots."""
    with serving(lambda _: Answer({})) as server:
        adapter = open_adapter(
            server.url("/accounts/{field.account}/leads/{key}?of={field.of}"),
            read={"url": server.url("/leads/{key}")},
            delete={"method": "DELETE", "url": server.url("/leads/{key}")},
        )
        wrong = [lead("a", account=value, of="..")]
        if value is not None:
            wrong += [lead(value, account="x"), Record(value, 2, {}, deleted=True)]
            assert adapter.read([value]) == {}
        outcomes = [adapter.send([record])[0] for record in wrong]
        assert [(type(each), getattr(each, "field", "")) for each in outcomes] == [
            (Invalid, "account"), (Invalid, ""), (Invalid, ""),
        ][: len(wrong)]  # fmt: skip
        assert not asked(server)
        assert adapter.send([lead("a", account="v.1/x..", of=value)]) == [Ok("")]


def test_the_calls_that_limits_count(open_adapter: Open) -> None:
    together = {"records_per_call": 50, "body": {"leads": "{records}"}}
    new = [lead(str(number)) for number in range(120)]
    stored = [replace(record, remote_id="r") for record in new]
    deletions = [replace(record, deleted=True) for record in new[:7]]
    assert open_adapter("http://x/leads", **together).calls([*new[7:], *deletions]) == 3
    update = {"method": "PATCH", "url": "http://x/leads/{remote_id}"}
    adapter = open_adapter("http://x/leads", update=update, **together)
    assert (adapter.calls(new), adapter.calls(stored)) == (3, 120)
    assert adapter.calls(new, is_look_up=True) == 120
    for place, each in (("key", 1), ("remote_id", 2)):
        delete = {"method": "DELETE", "url": f"http://x/leads/{{{place}}}"}
        adapter = open_adapter("http://x/leads", delete=delete, **together)
        assert adapter.calls([*new[7:], *deletions]) == 3 + 7 * each


def test_a_secret_in_json_is_not_shown() -> None:
    secret = 'hush"hüsh'
    adapter = HttpAdapter({"url": "https://crm.example.com"}, {"token": secret})
    try:
        for text in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
            assert adapter.without_secrets(text) == '"•••"'
    finally:
        adapter.close()


def test_a_short_secret_is_masked_where_it_stands_alone() -> None:
    adapter = HttpAdapter({"url": "https://crm.example.com"}, {"user": "a", "password": "ab1"})
    try:
        text = "https://a:ab1@crm.example.com: a name is missing at ab12"
        shown = "https://•••:•••@crm.example.com: ••• name is missing at ab12"
        assert adapter.without_secrets(text) == shown
    finally:
        adapter.close()


def test_a_secret_in_an_address_is_not_shown(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]

    def answer(request: Asked) -> Answer:
        return Answer({"message": f"no such page: {request.target}"}, 400)

    with serving(answer) as server:
        adapter = HttpAdapter({"url": server.url("/{secret.token}")}, {"token": "hush/hush"})
        (outcome,) = adapter.send([lead("a")])
        adapter.close()
        assert outcome == Invalid("", "HTTP 400: no such page: /•••")


def test_the_test_button(open_adapter: Open) -> None:
    with serving(LeadStore()) as server:
        test = {"url": server.url("/leads/none"), "method": "GET"}
        adapter = open_adapter(server.url(), test=test, fields=["name"])
        assert adapter.check().kind == "credentials"
        assert adapter.check(["nam"]).kind == "credentials"
    routes = {("GET", "/me"): lambda _: Answer({"errorCode": 0})}
    with serving(routed(routes)) as server:
        adapter = open_adapter(
            server.url(), test={"url": server.url("/me")}, fields=["name"],
            answer={"code": "errorCode"},
        )  # fmt: skip
        assert adapter.check(["name"]).kind == "ok"
        assert adapter.check(["nam"]).message == ("The CRM has no field nam. Did you mean name?")
    assert adapter.check().kind == "unreachable"


def test_the_test_call_of_a_crm_that_takes_batches_lists_no_results(open_adapter: Open) -> None:
    with serving(lambda _: Answer({"held": 7})) as server:
        adapter = open_adapter(
            server.url(), test={"url": server.url("/health")},
            answer={"results": "results", "result": {"code": "status"}},
        )  # fmt: skip
        assert adapter.check().kind == "ok"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"body": {"x": "{phone}"}}, "body"),
        ({"headers": {"Authorization": "{secret.tokn}"}}, "headers"),
        ({"headers": {"{key}": "x"}}, "headers"),
        ({"headers": {"X-Of": "{field.of}"}, "read": {"url": "http://x/{key}"}}, "headers"),
        ({"headers": {"X-Key": "{key}"}, "records_per_call": 5, "body": "{records}"}, "headers"),
        ({"records_per_call": 5}, "body"),
        ({"records_per_call": 5, "body": "{records}", "url": "http://x/{key}"}, "url"),
        ({"read": {"url": "http://x/{id}"}}, "read"),
        ({"answer": {"kinds": {"1": "maybe"}}}, "answer.kinds[...]"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        HttpAdapter({"url": "http://x/", **given}, TOKEN)
    assert error.value.field == field


def test_secrets_are_shown_nowhere(open_adapter: Open) -> None:
    with serving(lambda r: Answer({"message": r.headers["authorization"]}, 401)) as server:
        headers = {"Authorization": "Bearer {secret.token}"}
        adapter = open_adapter(server.url(), headers=headers, test={"url": server.url()})
        shown = repr([adapter, adapter.send([lead("a")]), adapter.check(), adapter.credentials])
        assert "hush" not in shown
        assert "Bearer •••" in shown


def test_what_people_made_is_filled_in_by_its_id_and_not_deleted(open_adapter: Open) -> None:
    held = {"name": "boss", "phone": ""}
    record = Record("a", 1, {"name": "spam", "phone": "138"}, False, "7", should_fill_empty=True)
    with serving(lambda request: Answer(held if request.method == "GET" else {})) as server:
        by_id = server.url("/leads/{remote_id}")
        calls = {
            "update": {"method": "PATCH", "url": by_id, "body": "{fields}"},
            "delete": {"method": "DELETE", "url": by_id},
        }
        adapter = open_adapter(server.url("/leads"), **calls)
        (outcome,) = adapter.send([record])
        assert isinstance(outcome, Invalid)
        assert "read_by_id" in outcome.message
        adapter = open_adapter(server.url("/leads"), **calls, read_by_id={"url": by_id})
        assert adapter.send([record]) == [Ok("7")]
        assert adapter.send([Record("a", 2, {}, True, "7", is_adopted=True)]) == [Ok("7", False)]
        assert [(each.method, each.path, each.body) for each in asked(server)] == [
            ("GET", "/leads/7", None), ("PATCH", "/leads/7", {"phone": "138"}),
        ]  # fmt: skip


def test_without_a_test_call_only_the_server_is_looked_for(open_adapter: Open) -> None:
    adapter = open_adapter(f"http://127.0.0.1:{refusing_port()}/crm")
    assert adapter.check().kind == "unreachable"
    with serving(lambda request: Answer({"message": "who are you"}, 401)) as server:
        checked = open_adapter(server.url("/leads/{key}")).check()
        assert [each.method for each in asked(server)] == ["OPTIONS"]
    assert (checked.kind, checked.is_usable) == ("untested", True)
    assert checked.message.startswith("Not tested: a server answers (HTTP 401)")
    assert "Set `test`" in checked.message
