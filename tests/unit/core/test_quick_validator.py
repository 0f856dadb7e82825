"""The quick validator and the other one say the same of every value, or a schema has only the other
one."""

import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings as effort, strategies as st
from msgspec.structs import replace

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import patterns, schema as json_schema
from msgplatform.core.json.quick_validator import MAX_WORK
from tests.program_host import IS_FULL
from tests.unit.core.test_json_schema_suite import SUITE

NEWEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def both(schema: json_schema.Schema, value: Any) -> tuple[bool, bool]:
    """What the quick validator says, and the other one."""
    slowly = json_schema.first_error(replace(schema, quick=None), value)
    return json_schema.accepts(schema, value), slowly is None


def compiled(schema: Any) -> json_schema.Schema | None:
    try:
        return json_schema.compile_schema(
            {"allOf": [schema]} if isinstance(schema, bool) else schema
        )
    except InvalidInput:
        return None


def test_the_official_suite() -> None:
    """As drafts 2020-12 and 07, which differ in many of these schemas."""
    cases = {NEWEST: 0, DRAFT_7: 0}
    differing = []
    for draft in cases:
        for name, groups in SUITE.items():
            for group in groups:
                schema = group["schema"]
                if isinstance(schema, dict) and (draft == DRAFT_7 or "$schema" not in schema):
                    schema = {**schema, "$schema": draft}
                validators = compiled(schema)
                if validators is None or validators.quick is None:
                    continue
                for case in group["tests"]:
                    cases[draft] += 1
                    quickly, slowly = both(validators, case["data"])
                    if quickly != slowly:
                        differing.append((draft, name, group["description"], case, quickly))
    assert differing == []
    assert cases[NEWEST] > 600
    assert cases[DRAFT_7] > 400


# -- any schema ----------------------------------------------------------------------------------
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.1, 0.01, 19.99, 1.0, -0.0, 2.5, 1e300, -1e-300, 5e-324, 4.35, 0.07]),
    st.sampled_from(
        [2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64, 10**30, float(2**53), float(2**64)]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "b", "ab", "x-a", "7", "12.00", "12.0\n", "é", "中文", "😀", "\n", "٣"]
    ),
    st.text(max_size=3),
)
NAMES = st.sampled_from(["a", "b", "x-a", "é", ""])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(NAMES, below, max_size=4)),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
PATTERNS = st.sampled_from(
    ["", "a", "^a", "b$", r"^\d+\.\d{2}$", r"^\w$", r"\s", ".", "^.$", "[^a]", "^[一-龥]+$",
     "(a|b)+", r"^\p{L}+$", "x{2,3}", r"\bab\b", "(?i)A", r"^é$", r"\D", r"\W", r"\S"]
)  # fmt: skip
COUNTS = st.integers(0, 3)
BOUNDS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.0, 19.99, 1e10, -2.5]))


def keywords(below: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    names = st.lists(NAMES, max_size=2, unique=True)
    return {
        "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
        "enum": st.lists(VALUES, min_size=1, max_size=4),
        "const": VALUES,
        "minimum": BOUNDS, "maximum": BOUNDS,
        "exclusiveMinimum": BOUNDS, "exclusiveMaximum": BOUNDS,
        "multipleOf": st.sampled_from([0.01, 1, 2, 0.5, 0.1, 1e-8, 3]),
        "minLength": COUNTS, "maxLength": COUNTS, "pattern": PATTERNS,
        "format": st.sampled_from(["email", "date", "ipv4", "uuid", "regex"]),
        "minItems": COUNTS, "maxItems": COUNTS, "uniqueItems": st.booleans(),
        "minProperties": COUNTS, "maxProperties": COUNTS, "required": names,
        "items": below, "contains": below, "not": below, "if": below, "then": below, "else": below,
        "additionalProperties": below, "propertyNames": below,
        "properties": st.dictionaries(NAMES, below, max_size=3),
        "patternProperties": st.dictionaries(
            st.sampled_from(["^x-", "a", "^a$", "é", "", "."]), below, max_size=2
        ),
        "allOf": st.lists(below, min_size=1, max_size=2),
        "anyOf": st.lists(below, min_size=1, max_size=3),
        "oneOf": st.lists(below, min_size=1, max_size=3),
        "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b", "#/definitions/c"]),
        "title": TEXTS, "x-note": VALUES, "default": VALUES,
        # Of the newest draft.
        "minContains": COUNTS, "maxContains": COUNTS,
        "prefixItems": st.lists(below, min_size=1, max_size=2),
        "dependentRequired": st.dictionaries(NAMES, names, max_size=2),
        "dependentSchemas": st.dictionaries(NAMES, below, max_size=2),
    }  # fmt: skip


@st.composite
def parts(draw: st.DrawFn, below: st.SearchStrategy[Any]) -> dict[str, Any]:
    strategies = keywords(below)
    names = draw(st.lists(st.sampled_from(sorted(strategies)), max_size=4, unique=True))
    return {name: draw(strategies[name]) for name in names}


PARTS = st.recursive(st.booleans(), parts, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    whole = draw(parts(PARTS))
    whole["$schema"] = draw(st.sampled_from([NEWEST, DRAFT_7]))
    return {
        **whole,
        "$defs": {"a": draw(PARTS), "b": {"type": "string"}},
        "definitions": {"c": True},
    }


@effort(
    max_examples=300 if IS_FULL else 100, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(schemas(), st.lists(VALUES, min_size=1, max_size=6))
def test_both_say_the_same(schema: dict[str, Any], values: list[Any]) -> None:
    validators = compiled(schema)
    if validators is None or validators.quick is None:
        event("only the other validator")
        return
    for value in values:
        # As it comes out of a payload.
        decoded = msgspec.json.decode(msgspec.json.encode(value))
        quickly, slowly = both(validators, decoded)
        event(f"matches: {slowly}")
        assert quickly == slowly, decoded


# -- regular expressions -------------------------------------------------------------------------
CHARACTERS = st.sampled_from("ab19_-é中😀. /\n\tKſİ")
ATOMS = st.one_of(
    CHARACTERS.map(lambda text: text.replace(".", r"\.")),
    st.sampled_from([r"\d", r"\D", r"\w", r"\W", ".", "^", "$", "[a-f]", "[^a-f]", "[A-Z0-9-]",
                     r"[\w.]", r"[^\d]", "[一-龥]", "[é-ü]", r"[\]\-]", "[-+]", "[.$|]", "()"]),
)  # fmt: skip
COUNTED = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{0,2}", "{1,}", "*?"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda below: st.one_of(
        st.tuples(below, COUNTED).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.lists(below, min_size=1, max_size=4).map("".join),
        st.lists(below, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
    ),
    max_leaves=8,
)
STRINGS = st.one_of(st.text(CHARACTERS, max_size=6), st.text(max_size=4))


@effort(
    max_examples=300 if IS_FULL else 100, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(EXPRESSIONS, st.lists(STRINGS, min_size=1, max_size=8))
def test_both_engines_match_the_same(expression: str, strings: list[str]) -> None:
    quick = json_schema.compile_schema({"pattern": expression}).quick
    assert quick is not None
    assert quick.weight < 100, "the library's own engine"
    for text in strings:
        assert quick.accepts(text, 1) == patterns.matches(expression, text), text


@pytest.mark.parametrize(
    "expression",
    [
        r"\s",
        r"[^\s]",
        r"\b",
        r"a\Z",
        "[[:alpha:]]",
        "(?i)k",
        "[a&&b]",
        "[+--]",
        r"\p{L}",
        r"\u4e00",
    ],
)
def test_expressions_that_are_left_to_re2(expression: str) -> None:
    quick = json_schema.compile_schema({"pattern": expression}).quick
    assert quick is not None
    assert quick.weight > 100
    for text in ("", "a", "b", "&", "-", "k", "\u212a", "\xa0", "é", "\u4e00", "a\n", "\ufeff"):
        assert quick.accepts(text, 1) == patterns.matches(expression, text), text


# -- what each is known for ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "value", "is_valid"),
    [
        ({"multipleOf": 0.01}, 19.99, True),
        ({"multipleOf": 0.01}, 19.999, False),
        ({"multipleOf": 0.01}, 10**30, True),
        ({"items": {"multipleOf": 0.1}}, [0.1, 0.3, 0.7], True),
        ({"const": 1.0}, 1, True),
        ({"const": 1}, True, False),
        ({"enum": [[0]]}, [False], False),
        ({"enum": [{"a": 1}]}, {"a": 1.0}, True),
        ({"const": 0}, -0.0, True),
        ({"uniqueItems": True}, [1, True], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"type": "integer"}, 1.0, True),
        ({"type": "integer"}, 1e300, True),
        ({"maximum": 9007199254740991}, 9007199254740992, False),
        ({"pattern": r"^\d$"}, "٣", False),
        ({"pattern": r"^\w$"}, "é", False),
        ({"pattern": "a$"}, "a\n", False),
        ({"pattern": r"^\p{L}+$"}, "Żółć", True),
        ({"pattern": r"^[\u4e00-\u9fa5]{2,4}$"}, "中文", True),
        ({"patternProperties": {"^x-": False}}, {"x-a": 1}, False),
        ({"maxLength": 1}, "😀", True),
        ({"format": "email"}, "no address", True),
        ({"$schema": DRAFT_7, "format": "email"}, "no address", True),
        ({"$schema": DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {}}}, 1, True),
        ({"$id": "https://example.com/a", "$ref": "#/$defs/a", "$defs": {"a": False}}, 1, False),
    ],
)
def test_what_engines_read_in_different_ways(schema: Any, value: Any, is_valid: bool) -> None:
    validators = json_schema.compile_schema(schema)
    assert validators.quick is not None
    assert both(validators, value) == (is_valid, is_valid)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"$schema": DRAFT_7, "contentEncoding": "base64"},
        {"$schema": DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {}}, "maximum": 1},
        {"$schema": DRAFT_7, "items": [{}]},
        {"$schema": DRAFT_7, "dependencies": {"a": ["b"]}},
        {"unevaluatedProperties": False},
        {"properties": {"below": {"$ref": "#"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}},
        {"$dynamicRef": "#/$defs/a", "$defs": {"a": {}}},
        {"properties": {"a": {"$id": "https://example.com/a"}}},
        {"properties": {"a": {"$schema": DRAFT_7}}},
        {"patternProperties": {r"^\s+$": {}}},
        {"maximum": 9007199254740993},
        {"enum": [1e300]},
        {"unknown": 1},
    ],
)
def test_schemas_that_only_the_other_validator_reads(schema: Any) -> None:
    assert json_schema.compile_schema(schema).quick is None


# -- bounds --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "schema",
    [{"maximum": 5}, {"minimum": 0.5}, {"enum": [1, [[1]]]}, {"multipleOf": 2}, {"minItems": 1}],
)
def test_the_largest_numbers_and_the_deepest_lists(schema: Any) -> None:
    """As far as JSON of a payload can be read at all."""
    validators = json_schema.compile_schema(schema)
    for text in ("1" + "0" * 4000, "-1" + "0" * 4000, "1" + "0" * 30, "[" * 500 + "]" * 500):
        quickly, slowly = both(validators, msgspec.json.decode(text))
        assert quickly == slowly, text[:2]


def test_a_value_that_is_large_for_its_schema_is_left_to_the_other_one() -> None:
    quick = json_schema.compile_schema({"items": {"pattern": "a"}}).quick
    assert quick is not None
    assert quick.accepts(["a"], MAX_WORK // quick.weight)
    assert not quick.accepts(["a"], MAX_WORK // quick.weight + 1)


def test_no_validation_takes_long() -> None:
    """Schemas of every weight, each with as much of what is heavy for it as it takes."""
    names = [f"n{n}" for n in range(300)]
    heavy: list[tuple[dict[str, Any], Any]] = [
        ({"items": {"allOf": [{"type": "integer"}] * 400}}, 1),
        ({"items": {"anyOf": [*([{"type": "string"}] * 400), {}]}}, 1),
        ({"items": {"enum": [*range(3000)]}}, 2999),
        ({"items": {"properties": dict.fromkeys(names, True)}}, {}),
        ({"items": {"pattern": "^[a-f]{2}$"}}, "ab"),
        ({"items": {"pattern": "[ab]*a[ab]{100}c|^a"}}, "ab" * 200),
        ({"items": {"multipleOf": 0.01}}, 0.07),
        ({"items": {"uniqueItems": True}}, []),
        ({"items": {"not": {"const": [0] * 1000}}}, [0] * 999),
        ({"items": {"type": "integer"}}, 1),
    ]
    for schema, part in heavy:
        quick = json_schema.compile_schema(schema).quick
        assert quick is not None, schema
        size = min(MAX_WORK // quick.weight, 256 * 1024)
        items = [part] * (size // (len(msgspec.json.encode(part)) + 1))
        began = time.thread_time()
        assert quick.accepts(items, size), schema
        assert time.thread_time() - began < 1, schema


def test_a_chain_of_references_does_not_end_the_process() -> None:
    """Compiling and validating go a level deeper for each: in a thread, whose stack is small."""

    def compile_all() -> None:
        for length in (10, 100, 300, 1000):
            chain = {f"a{n}": {"not": {"$ref": f"#/$defs/a{n + 1}"}} for n in range(length)}
            schema = {"$ref": "#/$defs/a0", "$defs": {**chain, f"a{length}": {}}}
            with_values = compiled(schema)
            if with_values:
                json_schema.accepts(with_values, 1)
            done.append(length)

    done: list[int] = []
    thread = threading.Thread(target=compile_all)
    thread.start()
    thread.join()
    assert done == [10, 100, 300, 1000]
