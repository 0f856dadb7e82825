"""JSON Schemas: which can be used, and what is said of a value that does not match."""

from __future__ import annotations

from typing import Any

import pytest

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import schema as json_schema

ORDER = {
    "type": "object",
    "required": ["order"],
    "properties": {
        "order": {"type": "string"},
        "lines": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {"line": {"type": "object", "properties": {"amount": {"type": "number"}}}},
}


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"order": "7", "lines": [{"amount": 1}, {"amount": 2.5}]}, None, ""),
        ({"order": 7}, ".order", "7 is not of type 'string'"),
        ({}, "", "'order' is a required property"),
        ([], "", "is not of type 'object'"),
        (
            {"order": "7", "lines": [{}, {"amount": "x"}]},
            ".lines[1].amount",
            "not of type 'number'",
        ),
        ({"order": "7", "lines": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}, ".lines", "all different"),
    ],
)
def test_what_is_wrong_with_a_value(value: Any, path: str | None, words: str) -> None:
    wrong = json_schema.first_error(json_schema.compiled(ORDER), value)
    if path is None:
        assert wrong is None
    else:
        assert wrong is not None
        assert wrong.path == path
        assert words in wrong.reason


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "text"}, "type: "),
        ({"properties": {"a": {"minimum": "x"}}}, "properties.a.minimum: "),
        ({"$ref": "https://example.com/schema"}, "not followed"),
        ({"$ref": "file:///etc/passwd"}, "not followed"),
        ({"items": {"$ref": "#/$defs/missing"}}, "leads nowhere"),
        ({"$ref": "#"}, "refers to itself"),
        ({"allOf": [{}], "$ref": "#/allOf/first"}, "leads nowhere"),
        ({"minLength": 5, "$ref": "#/minLength/x"}, "leads nowhere"),
        ({"minLength": 5, "$ref": "#/minLength"}, "no schema"),
        ({"type": ["string"], "$dynamicRef": "#/type/0"}, "no schema"),
        ({"$ref": "#/properties", "properties": {"type": {"not": {}}}}, "cannot be used"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "a", "$ref": "#/$defs/b"}, "b": {}}},
            "cannot be used",
        ),
        ({"$schema": 5}, "address of a draft"),
        ({"$schema": []}, "address of a draft"),
        ({"$schema": "http://["}, "address of a draft"),
        ({"description": "x" * json_schema.MAX_SCHEMA_BYTES}, "64 KiB"),
    ],
)
def test_schemas_that_cannot_be_used(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("$", r"\$")):
        json_schema.compiled(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"multipleOf": 0.5}, 10**400),
        (
            {"properties": {"a": {"$id": "a", "$ref": "#/$defs/b"}}, "$defs": {"b": {}}},
            {"a": 1},
        ),
        (
            {"properties": {"a": {"$ref": "#/properties"}, "type": {"not": {}}}},
            {"a": 1},
        ),
    ],
)
def test_a_value_for_which_the_schema_cannot_be_used(schema: dict[str, Any], value: Any) -> None:
    wrong = json_schema.first_error(json_schema.compiled(schema), value)
    assert wrong is not None
    assert "cannot be used for it" in wrong.reason


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = json_schema.compiled({"properties": {"uniqueItems": {"type": "string"}}})
    assert json_schema.first_error(schema, {"uniqueItems": "yes"}) is None


def test_other_drafts_by_their_name() -> None:
    """What draft 4 says with a boolean, later ones say with a number."""
    schema = {"maximum": 5, "exclusiveMaximum": True}
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#", **schema}
    assert json_schema.first_error(json_schema.compiled(draft4), 5) is not None
    with pytest.raises(InvalidInput, match="exclusiveMaximum"):
        json_schema.compiled(schema)


def test_a_long_value_is_not_quoted_whole() -> None:
    wrong = json_schema.first_error(json_schema.compiled({"type": "string"}), ["x" * 5000])
    assert wrong is not None
    assert len(wrong.reason) <= 301


def test_long_lists_are_compared_in_one_pass() -> None:
    """Pair by pair, as the library does it, this would take minutes."""
    schema = json_schema.compiled({"uniqueItems": True})
    items = [{"n": n} for n in range(20_000)]
    assert json_schema.first_error(schema, items) is None
    assert json_schema.first_error(schema, [*items, {"n": 7}]) is not None
