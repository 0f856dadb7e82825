"""A change of the API that breaks a client is named; one that adds something is not."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from scripts.api_changes import Comparison

RELEASED: dict[str, Any] = {
    "paths": {
        "/messages": {
            "post": {
                "parameters": [{"in": "query", "name": "limit", "schema": {"type": "integer"}}],
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/In"}}}
                },
                "responses": {
                    "202": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Out"}}
                        }
                    }
                },
            }
        }
    },
    "components": {
        "schemas": {
            "In": {
                "type": "object", "required": ["key"],
                "properties": {
                    "key": {"type": "string", "maxLength": 128},
                    "kind": {"type": "string", "enum": ["a", "b"]},
                    "next": {"$ref": "#/components/schemas/In"},
                },
            },
            "Out": {
                "type": "object", "required": ["id", "rows"],
                "properties": {
                    "id": {"type": "string"},
                    "rows": {"type": "array", "items": {"$ref": "#/components/schemas/Row"}},
                },
            },
            "Row": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"}, "state": {"type": "string", "enum": ["a", "b"]},
                },
            },
        }
    },
}  # fmt: skip


def changes(change: Callable[[Any, Any], Any]) -> list[str]:
    document = copy.deepcopy(RELEASED)
    change(document["paths"]["/messages"]["post"], document["components"]["schemas"])
    return list(Comparison(RELEASED, document).breaking_changes())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda post, _: post["parameters"].clear(), "the parameter limit is gone"),
        (
            lambda post, _: post["parameters"].append(
                {"in": "header", "name": "x", "required": True}
            ),
            "the parameter x is required",
        ),
        (lambda _, rows: rows["In"]["properties"].pop("kind"), "body: kind is gone"),
        (lambda _, rows: rows["In"]["required"].append("kind"), "body: kind is required"),
        (lambda _, rows: rows["In"]["properties"]["kind"]["enum"].pop(), "no longer takes b"),
        (lambda _, rows: rows["In"]["properties"]["key"].update(maxLength=64), "maxLength is 64"),
        (
            lambda _, rows: rows["In"]["properties"]["key"].update(type="integer"),
            "no longer takes string",
        ),
        (lambda _, rows: rows["Out"]["properties"].pop("id"), "answer: id is gone"),
        (lambda _, rows: rows["Out"]["required"].remove("id"), "id is no longer always there"),
        (lambda _, rows: rows["Row"]["properties"].pop("n"), "rows[]: n is gone"),
        (
            lambda _, rows: rows["Row"]["properties"]["n"].update(type=["integer", "null"]),
            "rows[].n: may be null",
        ),
        (
            lambda _, rows: rows["Row"]["properties"]["state"]["enum"].append("c"),
            "rows[].state: may be c",
        ),
        (lambda _, rows: rows["Row"]["properties"]["state"].pop("enum"), "state: may be any value"),
        (lambda post, _: post["responses"].clear(), "the answer 202 is gone"),
    ],
)
def test_what_breaks_a_client(change: Callable[[Any, Any], Any], said: str) -> None:
    (text,) = changes(change)
    assert text.startswith("POST /messages")
    assert said in text


@pytest.mark.parametrize(
    "change",
    [
        lambda post, _: None,
        lambda post, _: post["parameters"].append({"in": "query", "name": "x"}),
        lambda _, rows: rows["In"]["properties"].update(new={"type": "string"}),
        lambda _, rows: rows["In"]["properties"]["kind"]["enum"].append("c"),
        lambda _, rows: rows["In"]["properties"]["key"].update(maxLength=256),
        lambda _, rows: rows["In"]["required"].clear(),
        lambda _, rows: rows["Out"]["properties"].update(new={"type": "string"}),
        lambda _, rows: rows["Row"]["properties"]["state"]["enum"].pop(),
    ],
)
def test_what_breaks_none(change: Callable[[Any, Any], Any]) -> None:
    assert changes(change) == []


def test_an_operation_that_is_gone() -> None:
    assert list(Comparison(RELEASED, {"paths": {}}).breaking_changes()) == [
        "POST /messages is gone"
    ]
