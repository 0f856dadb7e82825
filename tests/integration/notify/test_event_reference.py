"""The reference of events in the console: what it says of a payload, and who sees it."""

import html
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform.models import Biz
from notify.api.asyncapi import fields
from notify.api.asyncapi.schemas import rewritten
from notify.models import EventType

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
REFERENCE = "/admin/notify/eventtype/reference/"
ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["order"],
    "properties": {
        "order": {"type": "string", "description": "Its number", "pattern": "^[0-9]+$"},
        "currency": {"enum": ["CNY", "EUR"], "default": "CNY"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "parent": {"$ref": "#"},
        "either": {"oneOf": [{"type": "string"}, {"properties": {"deep": {"type": "null"}}}]},
        "never": False,
        "any": True,
        "a/b": {"$ref": "#/$defs/a~1b"},
    },
    "additionalProperties": {"type": ["integer", "null"], "minimum": 0},
    "$defs": {
        "line": {"allOf": [{"properties": {"sku": {"type": "string"}}}], "required": ["sku"]},
        "a/b": {"const": {"x": 1}},
    },
}


def text_of(answer: Any) -> str:
    """The words of a page, without its tags."""
    assert answer.status_code == 200
    return html.unescape(re.sub(r"<[^>]+>", "", answer.content.decode()))


def rows(schema: dict[str, Any]) -> list[fields.Field]:
    pointer = "#/components/schemas/x-payload"
    return fields.rows(rewritten(schema, pointer) or {}, pointer)[0]


def chain(part: Callable[[str], dict[str, Any]], count: int) -> dict[str, Any]:
    """A schema whose definitions refer to the next one each."""
    definitions = {f"a{n}": part(f"#/$defs/a{n + 1}") for n in range(count)}
    definitions[f"a{count}"] = {"type": ["object", "null"]}
    return {**part("#/$defs/a0"), "$defs": definitions}


def test_the_fields_of_a_schema() -> None:
    said = [(row.name, row.level, row.type, row.is_required) for row in rows(ORDER)]
    assert said[:4] == [
        ("order", 0, "string", True),
        ("currency", 0, "any", False),
        ("lines", 0, "array of object", False),
        ("sku", 1, "string", True),
    ]
    assert ("parent", 0, "object, as above", False) in said
    assert ("either", 0, "string | object", False) in said
    assert ("deep", 1, "null", False) in said
    assert [each for each in said if each[0] in {"never", "any", "a/b"}] == [
        ("never", 0, "not allowed", False), ("any", 0, "any", False), ("a/b", 0, '{"x": 1}', False),
    ]  # fmt: skip
    assert said[-1][1:] == (0, "integer | null", False)
    by_name = {row.name: row for row in reversed(rows(ORDER))}
    assert by_name["order"].description == "Its number"
    assert by_name["order"].limits == ("^[0-9]+$",)
    assert by_name["currency"].limits == ('one of "CNY", "EUR"', 'default "CNY"')


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}},
        {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"items": {"$ref": "#"}}]}}},
        {"properties": {"a": {"items": {"items": {"items": {"$ref": "#"}}}}}},
        {"oneOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}]}}},
        {"type": "array", "items": [{"type": "string"}], "$schema": "http://json-schema.org/draft-07/schema#"},
        {"properties": {f"n{n}": {} for n in range(1000)}},
        chain(lambda name: {"anyOf": [{"$ref": name}, {"$ref": name}]}, 30),
        chain(lambda name: {"items": {"$ref": name}}, 1500),
        {"properties": {"a": {"$ref": "#"}}}
        | chain(lambda name: {"type": "array", "items": {"$ref": name}}, 1500),
    ],
)  # fmt: skip
def test_a_strange_schema_has_an_end(schema: dict[str, Any]) -> None:
    began = time.process_time()
    assert len(rows(schema)) <= fields.MAX_ROWS
    assert time.process_time() - began < 5  # not hours


def test_a_list_of_itself(admin_client: Client) -> None:
    tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    schema = {"properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    row = EventType.objects.create(name="tree.grown", schema=schema)
    assert "array of array" in text_of(admin_client.get(f"{REFERENCE}{row.pk}/"))


def test_the_pages(admin_client: Client) -> None:
    page = text_of(admin_client.get(REFERENCE))
    assert "The catalogue is empty" in page
    shop = Biz.objects.create(name="shop")
    EventType.objects.create(name="order.gone")
    row = EventType.objects.create(
        name="order.paid", biz=shop, schema=ORDER, example={"order": "7"},
        description="It was paid.\n\nIn <full>.",
    )  # fmt: skip
    page = text_of(admin_client.get(REFERENCE, {"q": "PAID shop"}))
    assert "No event type has these words" in page
    page = text_of(admin_client.get(REFERENCE, {"q": "order paid"}))
    assert ("order.paid" in page, "It was paid." in page, "order.gone" in page) == (
        True,
        True,
        False,
    )
    page = text_of(admin_client.get(f"{REFERENCE}{row.pk}/"))
    for words in ("published by shop", "In <full>.", "sku", "array of object", "webhook-signature",
                  "ce-source: /systems/shop", '"specversion": "1.0"', "POST /api/v1/messages",
                  '"event_type": "order.paid"'):  # fmt: skip
        assert words in page, words
    assert admin_client.get(f"{REFERENCE}0/").status_code == 404
    assert REFERENCE in admin_client.get("/api/docs/").content.decode()


def test_who_sees_it(client: Client) -> None:
    person = User.objects.create_user("ann", is_staff=True)
    client.force_login(person)
    assert client.get(REFERENCE).status_code == 403
    assert REFERENCE not in client.get("/api/docs/").content.decode()
    person.user_permissions.set(Permission.objects.filter(codename="view_eventtype"))
    assert client.get(REFERENCE).status_code == 200


def test_the_list_costs_the_same_for_any_number_of_entries(admin_client: Client) -> None:
    for number in range(12):
        EventType.objects.create(name=f"order.n{number}", example={"n": number}, schema=ORDER)

    def count_statements(words: str) -> int:
        with CaptureQueriesContext(connection) as statements:
            page = text_of(admin_client.get(REFERENCE, {"q": words}))
        assert "order.n11" in page
        return len(statements)

    count_statements("")  # what a process reads once
    assert count_statements("order") == count_statements("n11")
