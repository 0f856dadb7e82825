"""XML-RPC against the real server: a stock `xmlrpc.client`, and what no honest client sends."""

import http.client
import json
import re
import xmlrpc.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from rest_framework.settings import api_settings

from gateway.api.xmlrpc import methods
from gateway.connections import sms_redis as sms_client
from gateway.lifecycle import keys, store
from gateway.models import SgipMo, SgipMt, SmsAccount, SmsGateway
from tests.support import sms_rows
from tests.support.api_server import Server
from tests.support.sms_rows import Caller, report, respond, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
NUMBER = "13800000000"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    server = Server(
        tmp_path_factory.mktemp("rpc") / "log",
        "tests.support.platform_asgi:application",
    )
    yield server
    server.stop()


@pytest.fixture
def proxy(server: Server, shop: Caller) -> Iterator[Any]:
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{server.port}/rpc/") as proxy:
        yield proxy


def refused(call: Callable[..., Any], *given: Any) -> tuple[int, str]:
    with pytest.raises(xmlrpc.client.Fault) as caught:
        call(*given)
    return caught.value.faultCode, caught.value.faultString


def raw(server: Server, body: bytes, **headers: str) -> tuple[int, str]:
    """(fault code, sentence) of a body that no stock client makes."""
    status, answer = server.request("POST", "/rpc/", body=body, headers=headers)
    assert status == 200, answer
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(answer)
    return caught.value.faultCode, caught.value.faultString


def limited(settings: Any, rate: str) -> None:
    """How often a key may call, in this process."""
    rates = {**api_settings.DEFAULT_THROTTLE_RATES, "write": rate, "read": rate}
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": rates}


def test_one_text(proxy: Any, shop: Caller) -> None:
    answer = proxy.sms.send(shop.key, NUMBER, "您好 😀")
    assert answer["outcome"] == "created"
    (message,) = answer["ids"]
    assert isinstance(message, str)
    (found,) = store.read([message])
    assert (found.mt.text, found.mt.user_number) == ("您好 😀", f"86{NUMBER}")


def scripts_run() -> int:
    """How many scripts the SMS Redis has run."""
    stats: Any = sms_client().info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


class TestManyCallersAtOnce:
    """Single texts that come together share a script, and so one wait for the disk."""

    CALLERS, TEXTS = 16, 12

    def at_once(self, send: Callable[[int, int], str]) -> tuple[list[str], int]:
        """The ids of all texts, and how many scripts stored them."""
        before = scripts_run()

        def caller(number: int) -> list[str]:
            return [send(number, text) for text in range(self.TEXTS)]

        with ThreadPoolExecutor(self.CALLERS) as pool:
            ids = [id for own in pool.map(caller, range(self.CALLERS)) for id in own]
        return ids, scripts_run() - before

    def check(self, ids: list[str], scripts: int) -> None:
        count = self.CALLERS * self.TEXTS
        assert len(set(ids)) == count
        texts = {message.mt.text for message in store.read(ids)}
        assert len(texts) == count, "an answer came before its text was stored"
        # How many share one is a matter of the machine: alone each would need one.
        assert 0 < scripts <= count * 2 / 3, f"{scripts} scripts for {count} texts"

    def test_over_xml_rpc(self, server: Server, shop: Caller) -> None:
        def send(number: int, text: int) -> str:
            with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{server.port}/rpc/") as proxy:
                sms: Any = proxy.sms
                options = {"idempotency_key": f"{number}-{text}"}
                (id,) = sms.send(shop.key, NUMBER, f"{number} {text}", options)["ids"]
                return str(id)

        ids, scripts = self.at_once(send)
        self.check(ids, scripts)

    def test_over_rest_through_django(self, shop: Caller) -> None:
        def send(number: int, text: int) -> str:
            try:
                answer = shop.post("/api/v1/sms", {"to": NUMBER, "text": f"{number} {text}"})
                assert answer.status_code == 202, answer.content
                (id,) = answer.json()["ids"]
                return str(id)
            finally:
                connections.close_all()

        ids, scripts = self.at_once(send)
        self.check(ids, scripts)

    def test_each_gets_its_own_refusal(self, server: Server, shop: Caller) -> None:
        def send(number: int, text: int) -> str:
            with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{server.port}/rpc/") as proxy:
                sms: Any = proxy.sms
                if text % 3 == 0:
                    to, words = ("abc", "to: 'abc' is not a telephone number")
                    assert refused(sms.send, shop.key, to, "x") == (methods.INVALID, words)
                (id,) = sms.send(shop.key, NUMBER, f"{number} {text}")["ids"]
                return str(id)

        ids, _scripts = self.at_once(send)
        assert len({message.mt.text for message in store.read(ids)}) == len(ids)


def test_many_recipients_and_options(proxy: Any, shop: Caller) -> None:
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    options = {
        "account": "marketing", "priority": 3, "reference": "order-7", "idempotency_key": "k",
        "expire_at": soon.isoformat(), "schedule_at": soon - timedelta(hours=1),
    }  # fmt: skip
    numbers = [f"1380000{n:04d}" for n in range(50)]
    first = proxy.sms.send(shop.key, numbers, "hello", options)
    again = proxy.sms.send(shop.key, numbers, "hello", options)
    assert again == {"outcome": "duplicate", "ids": first["ids"]}
    found = store.read(first["ids"])
    assert [f.mt.user_number for f in found] == [f"86{number}" for number in numbers]
    mt = found[0].mt
    assert (mt.priority, mt.reference) == (3, "order-7")
    assert (mt.expire_at, mt.schedule_at) == (soon.timestamp(), soon.timestamp() - 3600)
    code, _ = refused(proxy.sms.send, shop.key, numbers, "another", options)
    assert code == methods.CONFLICT


def test_many_texts(proxy: Any, shop: Caller) -> None:
    answers = proxy.sms.send_many(
        shop.key,
        [{"to": NUMBER, "text": "a", "reference": "1"}, {"to": "abc", "text": "b"}, 7,
         {"to": [NUMBER, "13900000000"], "text": "c"}],
    )  # fmt: skip
    assert [a["outcome"] for a in answers] == ["created", "rejected", "rejected", "created"]
    assert [len(a.get("ids", ())) for a in answers] == [1, 0, 0, 2]
    assert (answers[1]["code"], answers[1]["field"]) == ("invalid", "to")
    assert len(proxy.sms.send_many(shop.key, [{"to": NUMBER, "text": "a"}] * 1000)) == 1000
    for count in (0, 1001):
        code, text = refused(proxy.sms.send_many, shop.key, [{"to": NUMBER, "text": "a"}] * count)
        assert (code, text.split(":")[0]) == (methods.INVALID, "messages")


def test_what_became_of_them(proxy: Any, shop: Caller) -> None:
    ids = proxy.sms.send(shop.key, [NUMBER, "13900000000"], "hello")["ids"]
    gateway = SmsGateway.objects.get().pk
    made = submit(gateway)
    respond(made[ids[0]][0])
    report(made[ids[0]][0], state=2, error=25)
    found = proxy.sms.query(shop.key, [*ids, "7", "x"])
    assert [row["found"] for row in found] == [True, True, False, False]
    assert [row.get("state") for row in found[:2]] == ["failed", "submitted"]
    assert (found[0]["error_code"], found[1]["reported_at"]) == (25, "")
    assert all(isinstance(row["id"], str) for row in found)
    assert proxy.sms.query(shop.key, ids[0]) == found[:1]
    stranger = Caller("stock")
    assert [r["found"] for r in proxy.sms.query(stranger.key, ids)] == [False, False]
    assert SgipMt.objects.count() == 0
    for wrong in ([], ["1"] * 1001, 7.5, [["7"]], {"a": "b"}):
        assert refused(proxy.sms.query, shop.key, wrong)[0] == methods.INVALID


def test_an_id_that_is_given_twice(proxy: Any, shop: Caller) -> None:
    """Answered once, it would move the answers that follow to other ids."""
    (message,) = proxy.sms.send(shop.key, NUMBER, "hello")["ids"]
    code, sentence = refused(proxy.sms.query, shop.key, [message, "7", message])
    assert code == methods.INVALID
    assert sentence == f"ids: {message} is given twice"


@pytest.mark.parametrize(
    ("to", "text", "options", "field"),
    [
        ("abc", "x", {}, "to"),
        ([], "x", {}, "to"),
        (7, "x", {}, "to"),
        (NUMBER, "", {}, "text"),
        (NUMBER, 7.5, {}, "text"),
        (NUMBER, ["x"], {}, "text"),
        (NUMBER, xmlrpc.client.Binary(b"x"), {}, ""),
        (NUMBER, "x", {"priority": "1"}, "priority"),
        (NUMBER, "x", {"priority": True}, "priority"),
        (NUMBER, "x", {"to": NUMBER}, "to"),
        (NUMBER, "x", {"unknown": 1}, "unknown"),
        (NUMBER, "x", "text", "options"),
        (NUMBER, "x", {"schedule_at": "soon"}, "schedule_at"),
        (NUMBER, "x", {"idempotency_key": ""}, "idempotency_key"),
    ],
)
def test_a_refusal_names_the_field(
    proxy: Any, shop: Caller, to: Any, text: Any, options: Any, field: str
) -> None:
    code, sentence = refused(proxy.sms.send, shop.key, to, text, options)
    assert code == methods.INVALID
    assert sentence.startswith(f"{field}: ") if field else sentence
    assert sms_client().keys("*") == []


class TestPhp:
    """What its clients send, for which PHP has one type of array and numbers turn up unasked."""

    def test_an_empty_array_for_no_options(self, proxy: Any, shop: Caller) -> None:
        assert proxy.sms.send(shop.key, NUMBER, "x", [])["outcome"] == "created"
        code, sentence = refused(proxy.sms.send, shop.key, NUMBER, "x", ["reference"])
        assert (code, sentence.split(":")[0]) == (methods.INVALID, "options")

    def test_digits_as_integers(self, server: Server, proxy: Any, shop: Caller) -> None:
        """The stock client writes no integer of more than 32 bits."""
        marked = xmlrpc.client.dumps(
            (shop.key, ["NUMBER"], 482913, {"reference": 7, "priority": 3}), "sms.send"
        )
        body = marked.replace("<string>NUMBER</string>", f"<i8>{NUMBER}</i8>").encode()
        status, answer = server.request("POST", "/rpc/", body=body)
        assert status == 200
        ((sent,), _) = xmlrpc.client.loads(answer)
        (found,) = store.read(sent["ids"])
        mt = found.mt
        assert (mt.user_number, mt.text) == (f"86{NUMBER}", "482913")
        assert (mt.reference, mt.priority) == ("7", 3)
        (row,) = proxy.sms.send_many(shop.key, [{"to": 1390000, "text": 1}])
        assert row["outcome"] == "created"
        assert proxy.sms.query(shop.key, 7) == [{"id": "7", "found": False}]


class TestIncoming:
    def test_page_by_page(self, proxy: Any, shop: Caller) -> None:
        ids = sms_rows.incoming(shop.biz, 250)
        seen: list[str] = []
        while found := proxy.sms.incoming(shop.key, seen[-1] if seen else ""):
            seen += [row["id"] for row in found]
        assert seen == ids
        assert proxy.sms.incoming(shop.key)[0] == {
            "id": ids[0], "from": "8613800000000", "to": "10655", "account": "marketing",
            "text": "text 0", "parts": 1, "missing_parts": 0,
            "received_at": proxy.sms.incoming(shop.key)[0]["received_at"],
        }  # fmt: skip

    def test_what_xml_cannot_carry_hides_nothing(self, proxy: Any, shop: Caller) -> None:
        (one,) = sms_rows.incoming(shop.biz, 1)
        SgipMo.objects.update(text="a\x00b\x1b\uffff")
        (found,) = proxy.sms.incoming(shop.key)
        assert (found["id"], found["text"]) == (one, "a\ufffdb\ufffd\ufffd")

    def test_line_ends_come_as_they_were_sent(self, proxy: Any, shop: Caller) -> None:
        sms_rows.incoming(shop.biz, 1)
        SgipMo.objects.update(text="a\r\nb\rc\nd")
        assert proxy.sms.incoming(shop.key)[0]["text"] == "a\r\nb\rc\nd"

    def test_whose_and_who_may(self, proxy: Any, shop: Caller) -> None:
        sms_rows.incoming(shop.biz, 1)
        assert proxy.sms.incoming(Caller("stock").key) == []
        writer = Caller("shop", "sms:write")
        assert refused(proxy.sms.incoming, writer.key)[0] == methods.MISSING_SCOPE
        code, sentence = refused(proxy.sms.incoming, shop.key, "x")
        assert (code, sentence.split(":")[0]) == (methods.INVALID, "since_id")


def test_keys_and_scopes(proxy: Any, shop: Caller) -> None:
    for wrong in ("", "mp_x", shop.key[:-1] + "!", 7, ["x"], {"a": 1}):
        assert refused(proxy.sms.send, wrong, NUMBER, "x")[0] == methods.UNAUTHENTICATED
    reader, writer = Caller("shop", "sms:read"), Caller("shop", "sms:write")
    code, sentence = refused(proxy.sms.send, reader.key, NUMBER, "x")
    assert (code, "sms:write" in sentence) == (methods.MISSING_SCOPE, True)
    assert refused(proxy.sms.query, writer.key, ["1"])[0] == methods.MISSING_SCOPE
    assert proxy.sms.query(reader.key, ["1"]) == [{"id": "1", "found": False}]


def test_the_server_explains_itself(proxy: Any) -> None:
    names = proxy.system.listMethods()
    assert {"sms.send", "sms.send_many", "sms.query"} < set(names)
    for name in names:
        assert proxy.system.methodHelp(name).startswith(name if "list" not in name else "The")
        assert all(
            isinstance(kind, str) for sign in proxy.system.methodSignature(name) for kind in sign
        )
    for call in (proxy.sms.nothing, proxy.system.methodHelp):
        assert refused(call, "sms.nothing")[0] == methods.NO_METHOD


class TestManyCallsInOne:
    def test_a_stock_multicall(self, proxy: Any, shop: Caller) -> None:
        calls = xmlrpc.client.MultiCall(proxy)
        calls.sms.send(shop.key, NUMBER, "one")
        calls.sms.send(shop.key, "12", "two")
        calls.sms.send("mp_wrong", NUMBER, "three")
        calls.system.listMethods()
        answers = calls()
        assert answers[0]["outcome"] == "created"
        assert len(store.read(answers[0]["ids"])) == 1
        for number, code in ((1, methods.INVALID), (2, methods.UNAUTHENTICATED)):
            with pytest.raises(xmlrpc.client.Fault) as caught:
                answers[number]
            assert caught.value.faultCode == code
        assert "sms.send" in answers[3]

    @pytest.mark.parametrize(
        ("calls", "text"),
        [
            ([], "1 to 100"),
            ([{"methodName": "system.listMethods", "params": []}] * 101, "1 to 100"),
            ("system.listMethods", "1 to 100"),
        ],
    )
    def test_what_is_no_list_of_calls(self, proxy: Any, calls: Any, text: str) -> None:
        code, sentence = refused(proxy.system.multicall, calls)
        assert (code, text in sentence) == (methods.INVALID, True)

    @pytest.mark.parametrize(
        "call",
        [
            {"methodName": "system.multicall", "params": [[]]},
            {"methodName": "system.listMethods"},
            {"methodName": 7, "params": []},
            "system.listMethods",
        ],
    )
    def test_what_is_no_call(self, proxy: Any, call: Any) -> None:
        good = {"methodName": "system.listMethods", "params": []}
        bad, fine = proxy.system.multicall([call, good])
        assert bad["faultCode"] == methods.INVALID
        assert "sms.send" in fine[0]

    def test_each_call_counts_for_the_limit(self, shop: Caller, settings: Any) -> None:
        limited(settings, "3/min")
        call = {"methodName": "sms.send", "params": [shop.key, NUMBER, "hello"]}
        body = xmlrpc.client.dumps(([call] * 5,), "system.multicall")
        answer = shop.client.post("/rpc/", body, content_type="text/xml")
        (answers,), _ = xmlrpc.client.loads(answer.content)
        assert ["ids" in a[0] if isinstance(a, list) else a["faultCode"] for a in answers] == [
            *[True] * 3, *[methods.THROTTLED] * 2,
        ]  # fmt: skip

    def test_how_many_messages_they_may_show(self, proxy: Any, shop: Caller) -> None:
        def query(count: int) -> dict[str, Any]:
            return {"methodName": "sms.query", "params": [shop.key, [str(n) for n in range(count)]]}

        one = {"methodName": "sms.query", "params": [shop.key, "7"]}
        incoming = {"methodName": "sms.incoming", "params": [shop.key]}
        send = {"methodName": "sms.send", "params": [shop.key, NUMBER, "hello"]}
        assert [len(answer[0]) for answer in proxy.system.multicall([query(999), one])] == [999, 1]
        assert proxy.system.multicall([incoming] * 5) == [[[]]] * 5
        for calls in ([query(1000), one], [query(101)] * 10, [incoming] * 6):
            code, sentence = refused(proxy.system.multicall, [send, *calls])
            assert (code, "1000 messages" in sentence) == (methods.INVALID, True)
        assert sms_client().keys("*mt:*") == []  # nothing of it was done


def test_a_wrong_number_of_parameters(proxy: Any, shop: Caller) -> None:
    lists: tuple[tuple[Any, ...], ...] = (
        (),
        (shop.key,),
        (shop.key, NUMBER),
        (shop.key, NUMBER, "x", {}, 1),
    )
    for given in lists:
        code, sentence = refused(proxy.sms.send, *given)
        assert (code, "sms.send(key, to, text, options)" in sentence) == (
            methods.WRONG_PARAMETERS, True,
        )  # fmt: skip


class TestHostileBodies:
    bomb = (
        b'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">'
        b'<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        b"<methodCall><methodName>system.methodHelp</methodName><params><param>"
        b"<value><string>&b;</string></value></param></params></methodCall>"
    )

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"{}", b"<", b"<methodCall/>", b"<methodCall></methodCall>", b"\xff\xfe",
            b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><methodCall/>',
            b"<methodResponse><fault><value><struct/></value></fault></methodResponse>",
            b"<methodCall><methodName>x</methodName><params><param><value><int>"
            + b"9" * 10_000 + b"</int></value></param></params></methodCall>",
            b'<?xml version="1.0" encoding="no-such"?><methodCall/>',
        ],
    )  # fmt: skip
    def test_what_is_no_call(self, server: Server, shop: Caller, body: bytes) -> None:
        code, sentence = raw(server, body)
        assert code == methods.NOT_XML
        assert sentence

    def test_an_entity_bomb(self, server: Server, shop: Caller) -> None:
        assert raw(server, self.bomb) == (
            methods.NOT_XML, "DTDs and entities are not read here."
        )  # fmt: skip

    def test_a_deep_one(self, server: Server, shop: Caller) -> None:
        opened = b"<array><data><value>" * 10_000
        closed = b"</value></data></array>" * 10_000
        body = (
            b"<methodCall><methodName>sms.send_many</methodName><params><param><value>"
            + opened + closed + b"</value></param></params></methodCall>"
        )  # fmt: skip
        code, sentence = raw(server, body)
        assert (code, "deep" in sentence) == (methods.NOT_XML, True)

    def test_a_large_one(self, server: Server, shop: Caller) -> None:
        body = b"<methodCall>" + b" " * (1024 * 1024) + b"</methodCall>"
        assert raw(server, body)[0] == methods.TOO_LARGE

    def test_a_packed_one(self, server: Server, shop: Caller) -> None:
        assert raw(server, b"x", **{"Content-Encoding": "gzip"})[0] == methods.NOT_XML

    def test_the_server_lives_on(self, proxy: Any) -> None:
        assert proxy.system.listMethods()


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
def test_another_method_is_told_how_to_call(server: Server, shop: Caller, method: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request(method, "/rpc/")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    text = answer.read().decode()
    assert "idempotency_key" in text or method == "HEAD"
    connection.close()


@pytest.mark.parametrize("path", ["rpc", "rpc/mp_03k2j4h5g6f7d8"])
def test_the_address_without_a_slash(server: Server, shop: Caller, path: str) -> None:
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{server.port}/{path}") as proxy:
        assert proxy.system.listMethods()


def test_a_key_is_throttled_as_over_rest(shop: Caller, settings: Any) -> None:
    limited(settings, "2/min")
    codes = []
    for _ in range(3):
        body = xmlrpc.client.dumps((shop.key, NUMBER, "x"), "sms.send").encode()
        answer = shop.client.post("/rpc/", body, content_type="text/xml")
        try:
            xmlrpc.client.loads(answer.content)
        except xmlrpc.client.Fault as fault:
            codes.append(fault.faultCode)
    assert codes == [methods.THROTTLED]
    assert len(sms_client().keys(f"{keys.PREFIX}mt:*")) == 2
    # REST counts on: it is the same key.
    assert shop.post("/api/v1/sms", {"to": NUMBER, "text": "x"}).status_code == 429


class TestDailyLimit:
    @pytest.fixture(autouse=True)
    def used_up(self, proxy: Any, shop: Caller) -> None:
        SmsAccount.objects.update(daily_limit=1)
        assert proxy.sms.send(shop.key, NUMBER, "x")["outcome"] == "created"

    def test_it_is_a_limit_and_nothing_wrong(self, proxy: Any, shop: Caller) -> None:
        code, sentence = refused(proxy.sms.send, shop.key, NUMBER, "x")
        assert code == methods.THROTTLED
        assert re.fullmatch(r".* limit of 1 messages a day .* repeat after \d+ s\.", sentence)
        (verdict,) = proxy.sms.send_many(shop.key, [{"to": NUMBER, "text": "x"}])
        assert verdict["code"] == "limit"

    def test_rest_says_so_at_its_door(self, server: Server, shop: Caller) -> None:
        """Where Django is not asked."""
        body = json.dumps({"to": NUMBER, "text": "x"}).encode()
        headers = {"Content-Type": "application/json"}
        answers = [server.request("POST", "/api/v1/sms", shop.key, body, headers) for _ in range(4)]
        assert [status for status, _ in answers] == [429] * 4
        assert {json.loads(answer)["type"] for _, answer in answers} == {"/problems/throttled"}


@pytest.mark.parametrize("method", ["sms.send", "sms.send_many"])
def test_without_redis_nothing_was_accepted(shop: Caller, settings: Any, method: str) -> None:
    settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
    options = {"idempotency_key": "k"}
    given = (NUMBER, "x", options) if method == "sms.send" else (
        [{"to": NUMBER, "text": "x", **options}],
    )  # fmt: skip
    body = xmlrpc.client.dumps((shop.key, *given), method)
    answer = shop.client.post("/rpc/", body, content_type="text/xml")
    code, _ = refused(xmlrpc.client.loads, answer.content)
    assert code == methods.UNAVAILABLE
