"""The catalogue as an AsyncAPI document: the official parser reads it, callers see their part."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify import orders
from notify.api.asyncapi import document
from notify.api.asyncapi.messages import BINARY_HEADERS, WEBHOOK_HEADERS, CatalogueEntry, Way
from notify.api.asyncapi.schemas import rewritten
from notify.models import EventType
from notify.subscriptions import limits
from notify.subscriptions.formats import CloudEvents
from tests.support.answers import Answer
from tests.support.api_support import problem
from tests.support.management import Manager

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
NODE_MODULES = Path(sys.prefix) / "npm" / "node_modules"
ADDRESS = "/api/asyncapi.json"
PAID = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
DRAFT = "http://json-schema.org/draft-0{}/schema#"
# Schemas that the catalogue takes, each with an example that matches it.
STRANGE: dict[str, tuple[dict[str, Any] | None, Any]] = {
    "recursion": (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "below": {"items": {"$ref": "#/$defs/node"}}, "all": {"$ref": "#"},
                    },
                }
            },
        },
        {"below": [{"below": []}], "all": {}},
    ),
    "booleans": ({"properties": {"any": True, "never": False}}, {"any": 1}),
    "names": (
        {
            "$defs": {"a/b~c d": {"type": "string"}, "名": {"type": "integer"}, "%25": {}},
            "properties": {
                "a/b": {"$ref": "#/$defs/a~1b~0c%20d"}, "名": {"$ref": "#/$defs/名"},
                "p": {"$ref": "#/$defs/%2525"}, "$ref": {"type": "string"},
            },
        },
        {"a/b": "x", "名": 1},
    ),
    "anchors": (
        {
            "$id": "https://example.com/order",
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"x": {"$ref": "#item"}},
            "$defs": {"i": {"$anchor": "item", "type": "string"}},
        },
        {"x": "y"},
    ),
    "tuples": ({"prefixItems": [{"type": "string"}], "items": False}, ["a"]),
    "beside": (
        {"properties": {"a": {"$ref": "#/$defs/s", "maxLength": 3}}, "$defs": {"s": {}}},
        {"a": "abc"},
    ),
    "references_in_data": (
        {"properties": {"a": {"const": {"$ref": "#"}}}}, {"b": {"$ref": "#/nowhere"}},
    ),
    "words": (
        {
            "discriminator": {"propertyName": "x"}, "externalDocs": 5, "additionalItems": "any",
            "format": "no-such", "dependentRequired": {"a": ["b"]}, "contains": {},
            "minContains": 0, "type": ["object", "null"], "x-y": {"z": {"type": "string"}},
        },
        {},
    ),
    "draft_3": ({"$schema": DRAFT.format(3), "properties": {"a": {"required": True}}}, {"a": 1}),
    "draft_4": (
        {"$schema": DRAFT.format(4), "id": "x", "minimum": 0, "exclusiveMinimum": True}, 1,
    ),
    "draft_7": (
        {"$schema": DRAFT.format(7), "$ref": "#/definitions/o", "definitions": {"o": {}}}, {},
    ),
    "nothing": (None, None),
    "only_an_example": (None, {"a": [1, None, "é"]}),
}  # fmt: skip


@pytest.fixture
def orders_system() -> Biz:
    return Biz.objects.create(name="orders")


def manager(*scopes: str) -> str:
    keys.forget()
    return keys.create(None, "generator", scopes or ("manage:event-types",))[1]


def get(key: str, query: str = "", **headers: str) -> Answer:
    answer: Answer = Client().get(
        ADDRESS + query, headers={"Authorization": f"Bearer {key}", **headers}
    )
    return answer


def parsed(*documents: Any) -> list[dict[str, Any]]:
    """What the official parser says of each document."""
    done = subprocess.run(
        ["node", Path(__file__).parents[2] / "support" / "asyncapi.cjs"],
        input=json.dumps(documents).encode(), capture_output=True, timeout=180, check=True,
        env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
    )  # fmt: skip
    return list(json.loads(done.stdout))


def test_the_official_parser_reads_it(orders_system: Biz) -> None:
    key = manager()
    empty = get(key).json()
    assert empty["channels"] == {}
    for name, (schema, example) in STRANGE.items():
        row = EventType(name=f"strange.{name}", schema=schema, example=example)
        row.full_clean()
        row.save()
    own = EventType.objects.create(
        name="order.paid",
        schema=PAID,
        example={"n": 1},
        biz=orders_system,
        description="One.\n\nTwo.",
    )
    text = get(key).json()
    of_empty, said = parsed(empty, text)
    assert of_empty == {"problems": [], "operations": []}
    assert said["problems"] == []
    operations = {operation["id"]: operation for operation in said["operations"]}
    assert len(operations) == len(STRANGE) + 2

    delivery = operations["orders--order.paid"]
    assert (delivery["action"], delivery["channels"]) == ("send", ["order.paid"])
    assert delivery["security"] == ["httpApiKey"]
    by_id = {message["id"]: message for message in delivery["messages"]}
    assert list(by_id) == [f"orders--order.paid-{way}" for way in Way if way != Way.PUBLISH]
    standard, structured, binary = by_id.values()
    assert standard["required"] == ["type", "timestamp", "data"]
    assert structured["contentType"] == "application/cloudevents+json"
    assert binary["required"] == ["n"]
    assert binary["headers"] == [header.name for header in BINARY_HEADERS]

    publishing = operations["publish-events"]
    assert (publishing["action"], publishing["security"]) == ("receive", ["http"])
    assert publishing["channels"] == ["/api/v1/messages"]
    assert len(publishing["messages"]) == len(STRANGE) + 1

    assert text["components"]["schemas"]["orders--order.paid-payload"]["required"] == ["n"]
    message = text["components"]["messages"]["orders--order.paid-standard"]
    assert (message["summary"], message["description"]) == ("One.", "One.\n\nTwo.")
    assert message["x-changed-at"] == own.changed_at.isoformat()


def test_names_as_cloud_events_have_them(orders_system: Biz) -> None:
    """Managed by their addresses, and each with components of its own."""
    api, paid = Manager("manage:event-types"), {"schema": PAID, "example": {"n": 1}}
    names = ["a-b", "a:b", "a/b", "a.b", "a_b", "a--b", "order", "order-publish", "order-payload",
             "https://example.com/order:paid", "orders--order"]  # fmt: skip
    addresses = [f"event-types/{quote(name, safe='')}" for name in names]
    addresses.append(f"systems/orders/event-types/{quote('a/b', safe='')}")
    for address in addresses:
        assert api.send("PUT", address, paid).status_code == 201, address
        assert api.send("GET", address).json()["example"] == {"n": 1}
    text = get(manager()).json()
    (said,) = parsed(text)
    assert said["problems"] == []
    assert len(said["operations"]) == len(addresses) + 1
    shared = {channel["address"] for channel in text["channels"].values()}
    assert shared == {*names, "/api/v1/messages"}
    assert len(get(manager(), "?event_type=a:b").json()["channels"]) == 2
    for address in addresses:
        assert api.send("DELETE", address).status_code == 204


def test_references_lead_to_the_same_place_of_the_document() -> None:
    def schema(name: str) -> dict[str, Any]:
        (original, _example) = STRANGE[name]
        return rewritten(original or {}, "#/components/schemas/x") or {}

    root = "#/components/schemas/x"
    node = {"$ref": f"{root}/$defs/node"}
    assert schema("recursion")["allOf"] == [node]
    below = schema("recursion")["$defs"]["node"]["properties"]
    assert below == {"below": {"items": node}, "all": {"$ref": root}}
    names = schema("names")["properties"]
    assert names["a/b"] == {"$ref": f"{root}/$defs/a~1b~0c%20d"}
    assert names["名"] == {"$ref": f"{root}/$defs/%E5%90%8D"}
    assert names["p"] == {"$ref": f"{root}/$defs/%2525"}
    assert schema("anchors")["properties"] == {"x": {"$ref": f"{root}/$defs/i"}}
    assert schema("tuples") == {"items": [{"type": "string"}], "additionalItems": False}
    assert schema("beside")["properties"]["a"]["maxLength"] == 3
    assert schema("words")["dependencies"] == {"a": ["b"]}
    assert schema("draft_4") == {"minimum": 0}
    assert rewritten(STRANGE["draft_3"][0] or {}, root) is None


def test_its_bodies_are_those_that_are_sent() -> None:
    row = EventType(biz=Biz(name="orders"), name="order.paid", example={"n": 1}, schema=PAID)
    entry = CatalogueEntry(row)
    example = entry.body(Way.STANDARD)
    body = orders.body("order.paid", example["timestamp"], b'{"n":1}')
    assert json.loads(body) == example
    structured = CloudEvents.of(Way.CLOUDEVENTS.value, entry.source)
    binary = CloudEvents.of(Way.CLOUDEVENTS_BINARY.value, entry.source)
    id = entry.body(Way.CLOUDEVENTS)["id"]
    assert json.loads(structured.render(id, body)[0]) == entry.body(Way.CLOUDEVENTS)
    content, lines = binary.render(id, body)
    assert json.loads(content) == entry.body(Way.CLOUDEVENTS_BINARY)
    names = [header.name for header in BINARY_HEADERS]
    own_names = limits.own_headers("webhook")
    assert [header.name for header in WEBHOOK_HEADERS] == own_names == names[: len(own_names)]
    assert [line.partition(":")[0] for line in lines] == names[len(own_names) :]


def test_a_system_and_a_type_are_named(orders_system: Biz) -> None:
    shop = Biz.objects.create(name="shop")
    for name, biz in (("order.paid", None), ("order.sent", None), ("user.born", None),
                      ("order.paid", orders_system), ("order.paid", shop)):  # fmt: skip
        EventType.objects.create(name=name, biz=biz)
    key = manager()

    def channels(query: str) -> list[str]:
        return [name for name in get(key, query).json()["channels"] if name != "publish-events"]

    everything = ["order.paid", "orders--order.paid", "shop--order.paid", "order.sent", "user.born"]
    assert channels("") == everything
    assert channels("?system=orders") == ["orders--order.paid", "order.sent", "user.born"]
    assert channels("?system=orders&event_type=order.*") == ["orders--order.paid", "order.sent"]
    assert channels("?event_type=order.sent") == ["order.sent"]
    assert channels("?event_type=nothing") == []
    problem(get(key, "?system=nobody"), 400, "invalid-input")
    problem(get(key, "?sytem=orders"), 400, "invalid-input")

    output = io.StringIO()
    call_command("asyncapi", "--system=orders", "--event-type=order.*", stdout=output)
    assert json.loads(output.getvalue()) == get(key, "?system=orders&event_type=order.*").json()
    with pytest.raises(CommandError, match="--system: no business system has this name"):
        call_command("asyncapi", "--system=nobody")


def test_it_is_sent_again_only_after_a_change(orders_system: Biz) -> None:
    row = EventType.objects.create(name="order.paid", biz=orders_system)
    key = manager()
    tags: list[str] = []

    def changed() -> bool:
        last = tags[-1] if tags else '""'
        answer = get(key, **{"If-None-Match": last})
        tags.append(answer["ETag"])
        assert answer["Cache-Control"] == "private, no-cache"
        assert (answer.status_code, not answer.content) in {(200, False), (304, True)}
        return answer.status_code == 200

    assert [changed(), changed()] == [True, False]
    row.description = "It was paid."
    row.save()
    assert [changed(), changed()] == [True, False]
    Biz.objects.update(name="sales")
    assert [changed(), changed()] == [True, False]
    row.delete()
    assert [changed(), changed()] == [True, False]
    assert len(set(tags)) == 4


def test_its_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    key = manager()
    EventType.objects.bulk_create(EventType(name=f"order.n{n}", example={"n": n}) for n in range(7))
    monkeypatch.setattr(document, "_PAGE", 3)
    get(key)
    with CaptureQueriesContext(connection) as queries:
        assert len(get(key).json()["channels"]) == 8
    assert sum("event_type" in query["sql"] for query in queries) == 1 + 3
    monkeypatch.setattr(document, "MAX_EVENT_TYPES", 6)
    (error,) = problem(get(key), 400, "invalid-input")["errors"]
    assert error["field"] == "event_type"
    assert get(key, "?event_type=order.n1").status_code == 200
    monkeypatch.setattr(document, "MAX_EVENT_TYPES", 7)
    monkeypatch.setattr(document, "MAX_BYTES", 20_000)
    assert "too many" in problem(get(key), 400, "invalid-input")["detail"]
    with pytest.raises(CommandError, match="--event-type"):
        call_command("asyncapi")


def test_who_may_read_it(orders_system: Biz) -> None:
    problem(Client().get(ADDRESS), 401, "unauthenticated")
    answer = problem(get(manager("manage:consumers")), 403, "missing-scope")
    assert answer["required_scope"] == "manage:event-types"
    own = keys.create(orders_system, "shop", ("events:read", "events:write"))[1]
    problem(get(own), 403, "missing-scope")

    Biz.objects.create(name="shop")
    for name in ("", "orders", "shop"):
        EventType.objects.create(name="order.paid", biz=Biz.objects.filter(name=name).first())
    limited = keys.create(None, "shop", ("manage:event-types",), system_names=["shop"])[1]
    for query in ("", "?event_type=order.*"):
        channels = get(limited, query).json()["channels"].keys()
        assert channels == {"order.paid", "shop--order.paid", "publish-events"}
    assert get(limited, "?system=shop").json()["channels"].keys() == {
        "shop--order.paid", "publish-events",
    }  # fmt: skip
    problem(get(limited, "?system=orders"), 400, "invalid-input")

    person = User.objects.create_user("ann", is_staff=True)
    browser = Client()
    browser.force_login(person)
    problem(browser.get(ADDRESS), 403, "forbidden")
    person.user_permissions.set(Permission.objects.filter(codename="view_eventtype"))
    page = browser.get(ADDRESS)
    assert (page.status_code, page["Content-Type"]) == (200, "application/json")
