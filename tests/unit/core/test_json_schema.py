"""JSON Schemas: which can be used, and what is said of a value that does not match."""

import time
from typing import Any

import pytest

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import schema as json_schema

NEWEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
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
    wrong = json_schema.first_error(json_schema.compile_schema(ORDER), value)
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
            "leads nowhere",
        ),
        ({"$schema": 5}, "address of a draft"),
        ({"$schema": []}, "address of a draft"),
        ({"$schema": "http://["}, "address of a draft"),
        ({"pattern": "^(?=.*x)"}, "Look-ahead"),
        ({"properties": {"a": {"patternProperties": {r"(a)\1": {}}}}}, "back-references"),
        ({"pattern": "("}, "missing"),
        ({"$schema": DRAFT_4, "pattern": "(?<!a)b"}, "cannot be"),
        (
            {"unevaluatedProperties": False, "allOf": [{"patternProperties": {"^(x+)+$": {}}}]},
            "unevaluatedProperties",
        ),
        (
            {
                "unevaluatedProperties": False,
                "$ref": "urn:schema#/%\t65xamples/0",
                "examples": [{"patternProperties": {"^(x+)+$": {}}}],
            },
            "unevaluatedProperties",
        ),
        (
            {"allOf": [{"pattern": "x{1000}" * 9 + str(n)} for n in range(700)]},
            "takes too long",
        ),
        ({"description": "x" * json_schema.MAX_SCHEMA_BYTES}, "64 KiB"),
    ],
)
def test_schemas_that_cannot_be_used(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("$", r"\$")):
        json_schema.compile_schema(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {"properties": {"a": {"$ref": "#/properties"}, "type": {"not": {}}}},
            {"a": 1},
        ),
        ({"$ref": "#/examples/0", "examples": [{"pattern": "(?=x)"}]}, "x"),
    ],
)
def test_a_value_for_which_the_schema_cannot_be_used(schema: dict[str, Any], value: Any) -> None:
    wrong = json_schema.first_error(json_schema.compile_schema(schema), value)
    assert wrong is not None
    assert "cannot be used for it" in wrong.reason


ZIP = {"type": "string"}
ADDRESS = {"type": "object", "properties": {"zip": {"$ref": "#/$defs/zip"}}, "$defs": {"zip": ZIP}}
BUNDLE = {
    "$id": "https://e.com/o",
    "properties": {"to": {"$ref": "address"}, "parts": {"items": {"$ref": "https://e.com/o"}}},
    "$defs": {"a": {"$schema": NEWEST, "$id": "https://e.com/address", **ADDRESS}},
}  # fmt: skip
DRAFT_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "properties": {"to": {"$ref": "#address"}},
    "definitions": {"a": {"$id": "#address", "type": "object"}},
}
# Places from which the drafts take no `$id`: `$defs` in draft 7, `components` in any draft.
PLACES = {"addr": {"$id": "addr", "properties": {"zip": {"$ref": "#/$defs/zip"}}}}


@pytest.mark.parametrize(
    ("schema", "value", "wrong_value"),
    [
        (DRAFT_7, {"to": {}}, {"to": 1}),
        ({"$schema": DRAFT_7["$schema"], "$ref": "#/$defs/addr", "$defs": {**PLACES, "zip": ZIP}},
         {"zip": "1"}, {"zip": 1}),
        ({"$ref": "#/components/addr", "components": PLACES, "$defs": {"zip": ZIP}},
         {"zip": "1"}, {"zip": 1}),
        (BUNDLE, {"to": {"zip": "1"}, "parts": [{}]}, {"parts": [{"to": {"zip": 1}}]}),
        ({"properties": {"a": {"type": "object"}}, "examples": [{"a": {"$ref": "https://e.com/"}}],
          "default": {"pattern": "(?=x)"}}, {"a": {}}, {"a": 1}),
        ({"uniqueItems": True}, [1, 2.0, "1.0"], [{"n": [1]}, {"n": [1.0]}]),
    ],
)  # fmt: skip
def test_schemas_as_their_drafts_have_them(
    schema: dict[str, Any], value: Any, wrong_value: Any
) -> None:
    """Names and addresses in a document, values that look like schemas, and equal numbers."""
    compiled = json_schema.compile_schema(schema)
    assert json_schema.first_error(compiled, value) is None
    assert json_schema.first_error(compiled, wrong_value) is not None


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = json_schema.compile_schema({"properties": {"uniqueItems": {"type": "string"}}})
    assert json_schema.first_error(schema, {"uniqueItems": "yes"}) is None


def test_other_drafts_by_their_name() -> None:
    """What draft 4 says with a boolean, later ones say with a number."""
    schema = {"maximum": 5, "exclusiveMaximum": True}
    draft4 = {"$schema": DRAFT_4, **schema}
    assert json_schema.first_error(json_schema.compile_schema(draft4), 5) is not None
    with pytest.raises(InvalidInput, match="exclusiveMaximum"):
        json_schema.compile_schema(schema)


def test_a_long_value_is_not_quoted_whole() -> None:
    wrong = json_schema.first_error(json_schema.compile_schema({"type": "string"}), ["x" * 5000])
    assert wrong is not None
    assert len(wrong.reason) <= 301


def test_long_lists_are_compared_in_one_pass() -> None:
    """Pair by pair, as the library does it, this would take minutes."""
    schema = json_schema.compile_schema({"uniqueItems": True})
    items = [{"n": n} for n in range(20_000)]
    assert json_schema.first_error(schema, items) is None
    assert json_schema.first_error(schema, [*items, {"n": 7}]) is not None


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        (r"^[\u4e00-\u9fa5]{2,4}$", "中文", True),
        (r"^[\u4e00-\u9fa5]{2,4}$", "zhong", False),
        (r"^\ud83d\ude00\/\Z", "😀/", True),
        (r"^\\u0041$", r"\u0041", True),
        (r"^\p{L}+$", "Żółć", True),
        ("a$", "a\n", False),
    ],
)
def test_patterns_as_json_schema_has_them(pattern: str, text: str, matches: bool) -> None:
    schema = json_schema.compile_schema({"pattern": pattern})
    assert (json_schema.first_error(schema, text) is None) == matches


def references(depth: int, **each: Any) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    levels = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2, **each} for n in range(depth)}
    return {"$ref": "#/$defs/a0", "$defs": {**levels, f"a{depth}": {"type": "number"}}}


DEPENDENT = {
    f"a{n}": {"dependentSchemas": {key: {"$ref": f"#/$defs/a{n + 1}"} for key in "ab"}}
    for n in range(25)
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (references(30), 1),
        ({"items": {"enum": list(range(10_000))}}, list(range(9_000, 10_000))),
        ({"anyOf": [{"type": "string"}] * 2_500}, list(range(40_000))),
        ({"items": {"properties": {f"p{n}": {} for n in range(3_000)}}}, [{}] * 60_000),
        ({"patternProperties": {f"^{n}[a-z]+$": {} for n in range(1_500)}},
         {f"k{n}": 1 for n in range(20_000)}),
        ({"unevaluatedProperties": False, "$ref": "#/$defs/a0", "$defs": {**DEPENDENT, "a25": {}}},
         {"a": 1, "b": 2}),
        ({"pattern": "[ab]*a[ab]{900}c"}, "abbaab" * 40_000),
    ],
    ids=["references", "enum", "errors", "properties", "names", "unevaluated", "instructions"],
)  # fmt: skip
def test_a_validation_that_would_take_too_long_is_ended(schema: Any, value: Any) -> None:
    validator = json_schema.compile_schema(schema)
    began = time.thread_time()
    wrong = json_schema.first_error(validator, value)
    assert wrong is not None
    assert "takes too long" in wrong.reason
    assert time.thread_time() - began < 20


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "https://e.com/o", "required": ["x"], "properties": {"y": {"$id": "/o#"}}},
        {"$schema": DRAFT_4, "required": ["x"], "properties": {"y": {"id": ""}}},
    ],
)
def test_a_part_with_the_address_of_the_document_does_not_take_its_place(
    schema: dict[str, Any],
) -> None:
    compiled = json_schema.compile_schema(schema)
    assert json_schema.first_error(compiled, {"x": 1, "y": 1}) is None
    assert "required" in str(json_schema.first_error(compiled, {"y": 1}))


@pytest.mark.parametrize(
    ("reference", "part", "value"),
    [
        ("#a", {"$schema": NEWEST, "pattern": "^(a+)+$"}, ["a" * 30 + "!"]),
        ("#a", {"type": "string"}, ["x"] * 1_000 + [1]),
        ("urn:schema#/%\t65xamples/0", {"$schema": NEWEST, "pattern": "^(a+)+$"}, ["a" * 30 + "!"]),
    ],
    ids=["address of a draft", "name of a place", "address of a draft in a value"],
)
def test_a_part_with_an_address_or_a_name_takes_no_longer(
    reference: str, part: Any, value: Any
) -> None:
    """The library has its own classes by address, and would look for the name in all parts."""
    parts = {"a": {"$anchor": "a", **part}, **{f"b{n}": {} for n in range(4_000)}}
    schema = {"items": {"$ref": reference}, "$defs": parts, "examples": [part]}
    validator = json_schema.compile_schema({"$schema": NEWEST, **schema})
    began = time.thread_time()
    assert json_schema.first_error(validator, value) is not None
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("draft", [NEWEST, DRAFT_7["$schema"]])
def test_a_schema_is_checked_in_bounded_time(draft: str) -> None:
    """The library compares these items pair by pair."""
    began = time.thread_time()
    with pytest.raises(InvalidInput, match="type"):
        json_schema.compile_schema({"$schema": draft, "type": ["a", *range(12_000)]})
    assert time.thread_time() - began < 5


def test_a_payload_of_the_largest_size_is_validated() -> None:
    line = {
        "type": "object",
        "required": ["sku", "quantity", "price"],
        "additionalProperties": False,
        "properties": {
            "sku": {"type": "string", "pattern": "^[A-Z0-9-]{3,20}$"},
            "quantity": {"type": "integer", "minimum": 1},
            "price": {"type": "string", "pattern": r"^\d+\.\d{2}$"},
            "currency": {"enum": ["CNY", "EUR", "USD"]},
        },
    }
    any_of = {"anyOf": [{"required": ["other"]}, {"$ref": "#/$defs/line"}]}
    schema = json_schema.compile_schema({"items": any_of, "$defs": {"line": line}})
    lines = [
        {"sku": f"ABC-{n}", "quantity": 3, "price": "12.00", "currency": "CNY"}
        for n in range(3_900)
    ]
    assert json_schema.first_error(schema, lines) is None
    assert json_schema.first_error(schema, [*lines, {}]) is not None
    for draft in (NEWEST, DRAFT_4):  # draft 4 has no quick validator
        numbers = json_schema.compile_schema({"$schema": draft, "items": {"type": "number"}})
        assert json_schema.first_error(numbers, [1] * 130_000) is None


def multiples(factor: float, *numbers: float) -> list[bool]:
    schema = json_schema.compile_schema({"multipleOf": factor})
    return [json_schema.first_error(schema, number) is None for number in numbers]


def test_multiples_are_decimal() -> None:
    """Amounts of issues of jsonschema and gojsonschema, which divide in binary."""
    amounts = (19.99, 4.02, 1.11, 9313.8, 300.52, 1070468.14, 0.07, 8.61, 10.15)
    assert all(multiples(0.01, *amounts))
    assert all(multiples(0.01, *(cents / 100 for cents in range(10_000))))
    assert all(multiples(0.0001, 360.57, 74.77))
    assert multiples(0.01, 19.999, 0.001) == [False, False]
    assert multiples(0.5, 10**400, 1e308) == [True, True]
    assert multiples(1e-8, 12391239123) == [True]
    assert multiples(0.123456789, 1e308) == [False]
