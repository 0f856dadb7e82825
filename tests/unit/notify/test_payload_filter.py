"""Filters on payloads: operators, paths, types, bad documents, and a slow and simple evaluation."""

import json
import time
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given, strategies as st

from notify.messages import filtered
from notify.subscriptions import filter_conditions, payload_filter


def event(data: str) -> Any:
    """An event whose payload is this JSON."""
    body = f'{{"type":"order.paid","timestamp":"2026-11-29T08:00:00.000000Z","data":{data}}}'
    return filter_conditions.event_of(body, 7, "eu", "/systems/orders")


def gets_through(document: Any, data: str) -> bool:
    node = payload_filter.compiled(document)
    return node is None or filter_conditions.matches(node, event(data))


def reason(document: Any, data: str) -> str:
    node = payload_filter.compiled(document)
    assert node is not None
    why = filtered.mismatch(node, event(data))
    assert why is not None
    return why.reason


# The examples of Convoy's page about filters, below `data`.
@pytest.mark.parametrize(
    ("document", "matching", "other"),
    [
        ({"event_type": "created"}, {"event_type": "created"}, {"event_type": "deleted"}),
        ({"event": {"type": "created"}}, {"event": {"type": "created"}}, {"event": "created"}),
        ({"dish": {"ingredients": "rice"}}, {"dish": {"ingredients": ["egg", "rice"]}},
         {"dish": {"ingredients": ["egg"]}}),
        ({"event": {"$neq": "created"}}, {"event": "deleted"}, {"event": "created"}),
        ({"$or": [{"cities": "london"}, {"type": "weekly"}]}, {"type": "weekly"},
         {"cities": "lagos", "type": "daily"}),
        ({"$and": [{"age": {"$gte": 10}}, {"$or": [{"type": "weekly"}, {"cities": "lagos"}]}]},
         {"age": 10, "cities": "lagos"}, {"age": 9, "cities": "lagos"}),
        ({"operation": {"$in": ["created", "deleted"]}}, {"operation": "deleted"},
         {"operation": "updated"}),
        ({"operation": {"$nin": ["updated", "truncated"]}}, {"operation": "created"},
         {"operation": "updated"}),
        ({"age": {"$gt": 1}}, {"age": 1.5}, {"age": 1}),
        ({"venues.$.lagos.$.ikeja": 1}, {"venues": [{"lagos": [{"ikeja": 2}, {"ikeja": 1}]}]},
         {"venues": [{"lagos": [{"ikeja": 2}]}]}),
        ({"event": {"$regex": "^crea"}}, {"event": "created"}, {"event": "recreated"}),
        ({"event": {"$exist": True}}, {"event": None}, {"other": 1}),
    ],
)  # fmt: skip
def test_examples_of_convoy(document: Any, matching: Any, other: Any) -> None:
    assert gets_through({"data": document}, json.dumps(matching))
    assert not gets_through({"data": document}, json.dumps(other))


# The examples of Outpost's page about destination filters, with `type` for its `topic`.
@pytest.mark.parametrize(
    ("document", "matching", "other"),
    [
        ({"type": "order.paid", "data": {"status": "paid"}}, {"status": "paid"}, {"status": "new"}),
        ({"data": {"status": "paid", "currency": "usd"}}, {"status": "paid", "currency": "usd"},
         {"status": "paid", "currency": "eur"}),
        ({"data": {"customer": {"tier": "premium"}}}, {"customer": {"tier": "premium", "id": 1}},
         {"customer": "premium"}),
        ({"data": {"tags": "urgent"}}, {"tags": ["urgent", "support"]}, {"tags": ["support"]}),
        ({"data": {"amount": {"$gte": 100}}}, {"amount": 100}, {"amount": 99.99}),
        ({"data": {"amount": {"$gte": 100, "$lt": 500}}}, {"amount": 499}, {"amount": 500}),
        ({"data": {"status": {"$in": ["pending", "processing", "completed"]}}},
         {"status": "completed"}, {"status": "complete"}),
        ({"data": {"status": {"$nin": ["pending"]}}}, {"status": "paid"}, {"status": "pending"}),
        ({"data": {"email": {"$endsWith": "@example.com"}}}, {"email": "a@example.com"},
         {"email": "a@example.com.evil"}),
        ({"data": {"email": {"$startsWith": "a@"}}}, {"email": "a@example.com"}, {"email": "ba@"}),
        ({"data": {"discount_code": {"$exist": True}}}, {"discount_code": "X"}, {}),
        ({"data": {"deleted_at": {"$exist": False}}}, {}, {"deleted_at": "2026-01-01"}),
        ({"$or": [{"data": {"status": "paid"}}, {"data": {"status": "shipped"}}]},
         {"status": "shipped"}, {"status": "new"}),
        ({"$and": [{"data": {"status": "active"}}, {"data": {"amount": {"$gte": 100}}}]},
         {"status": "active", "amount": 100}, {"status": "active", "amount": 1}),
        ({"data": {"status": {"$not": {"$in": ["cancelled", "refunded"]}}}}, {"status": "paid"},
         {"status": "refunded"}),
        ({"data": {"status": {"$eq": "paid"}, "by": {"$neq": "robot"}}},
         {"status": "paid", "by": "Li"}, {"status": "paid", "by": "robot"}),
        ({"time": {"$gte": "2026-11-29T08:00:00", "$lt": "2026-11-29T09:00:00"},
          "data": {"n": {"$gt": 1, "$lte": 2}}}, {"n": 2}, {"n": 1}),
    ],
)  # fmt: skip
def test_examples_of_outpost(document: Any, matching: Any, other: Any) -> None:
    assert gets_through(document, json.dumps(matching))
    assert not gets_through(document, json.dumps(other))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"topic": "order.created"}, "a path begins with one of"),
        ({"metadata": {"source": "api"}}, "a path begins with one of"),
        ({"data": {"name": {"$in": "part of a text"}}}, "write a list of values"),
    ],
)
def test_what_outpost_has_beyond_is_refused(document: Any, words: str) -> None:
    """The first look of a filter that was taken over says what to change."""
    with pytest.raises(ValidationError, match=words):
        payload_filter.check(document)


@pytest.mark.parametrize(
    ("document", "data", "is_match"),
    [
        ({"data.a.b[0].c": 1}, '{"a":{"b":[{"c":1}]}}', True),
        ({"data.a.b[1].c": 1}, '{"a":{"b":[{"c":1}]}}', False),
        ({"data": {"a.b": {"c": 1}}}, '{"a":{"b":{"c":1}}}', True),
        # numbers by value, and no texts
        ({"data.total": 19.99}, '{"total":19.990}', True),
        ({"data.total": {"$gt": 0.3}}, '{"total":0.1}', False),
        ({"data.total": 1}, '{"total":1.0}', True),
        ({"data.total": 1}, '{"total":"1"}', False),
        ({"data.total": {"$gt": 100}}, '{"total":"101"}', False),
        ({"data.total": 1}, '{"total":true}', False),
        ({"data.total": True}, '{"total":1}', False),
        ({"data.total": {"$gt": 5}}, '{"total":1e400}', True),
        ({"data.total": {"$lt": 5}}, '{"total":-123456789012345678901234567890}', True),
        # null and missing are two things
        ({"data.a": None}, '{"a":null}', True),
        ({"data.a": None}, "{}", False),
        ({"data.a": {"$exist": False}}, "{}", True),
        ({"data.a": {"$exist": False}}, '{"a":null}', False),
        ({"data.a": {"$neq": 1}}, "{}", True),
        ({"data.a": {"$nin": [1]}}, "{}", True),
        ({"data.a": {"$gt": 1}}, "{}", False),
        ({"data.a.b.c": 1}, '{"a":[1]}', False),
        # texts
        ({"data.a": {"$startsWith": "ab"}}, '{"a":"abc"}', True),
        ({"data.a": {"$endsWith": "ab"}}, '{"a":"abc"}', False),
        ({"data.a": {"$contains": "b"}}, '{"a":"abc"}', True),
        ({"data.a": {"$contains": 2}}, '{"a":[1,2.0]}', True),
        ({"data.a": {"$contains": "b"}}, '{"a":5}', False),
        ({"data.a": {"$contains": "b"}}, '{"a":["b"]}', True),
        ({"data.a": {"$contains": "b"}}, '{"a":["abc"]}', False),
        ({"data.a": {"$contains": 2}}, '{"a":2}', False),
        # lists of values
        ({"data.a": {"$in": [[1, "1"], {"b": 1}]}}, '{"a":[1.0,"1"]}', True),
        ({"data.a": {"$in": [[1], {"b": 1}]}}, '{"a":{"b":1.0}}', True),
        ({"data.a": {"$in": [[1], {"b": 1}]}}, '{"a":{"b":true}}', False),
        ({"data.a": {"$in": [1, "true"]}}, '{"a":true}', False),
        ({"data.a": {"$in": [0, None]}}, '{"a":false}', False),
        ({"data.a": {"$in": [[], {}]}}, '{"a":[[]]}', True),
        ({"data.a": {"$in": [[], {}]}}, '{"a":[{"b":1}]}', False),
        ({"data.a": {"$in": ["1"]}}, '{"a":[1,[1]]}', False),
        ({"data.a": {"$in": [0]}}, '{"a":0e999999999}', True),
        ({"data.a": {"$in": [0]}}, '{"a":-0.0}', True),
        ({"data.a": {"$in": [False]}}, '{"a":0}', False),
        ({"data.a": {"$in": [None]}}, '{"a":null}', True),
        ({"data.a": {"$in": [1, 1e300]}}, '{"a":1e999999999}', False),
        ({"data.a": {"$in": [10**300]}}, '{"a":1e300}', True),
        ({"data.a": {"$gte": "2026-11"}}, '{"a":"2026-11-29"}', True),
        ({"data.a": "é"}, '{"a":"e\u0301"}', False),
        # arrays and objects as a whole
        ({"data.a": [1, 2]}, '{"a":[1.0,2]}', True),
        ({"data.a": [1, 2]}, '{"a":[2,1]}', False),
        ({"data.a": {"$eq": {"b": 1}}}, '{"a":{"b":1.0}}', True),
        ({"data.a": {"$neq": 1}}, '{"a":[1,2]}', False),
        ({"data.a": {"$gt": 5}}, '{"a":[1,6]}', True),
        ({"data.$.a": 1}, '[{"b":1},{"a":1}]', True),
        ({"data": 7}, "7", True),
        ({"data": {"$eq": "text"}}, '"text"', True),
        # attributes
        (
            {"type": "order.paid", "channel": "eu", "id": "7", "source": "/systems/orders"},
            "1",
            True,
        ),
        ({"time": {"$startsWith": "2026-11-29T08"}}, "1", True),
        ({"type": {"$in": ["order.late"]}}, "1", False),
        # not, or
        ({"data.a": {"$not": {"$gt": 5}}}, '{"a":5}', True),
        ({"data.a": {"$not": {"$gt": 5}}}, "{}", True),
        ({"$not": {"data.a": 1, "type": "order.paid"}}, '{"a":1}', False),
        ({"data.a": {"$gt": 1, "$lt": 5}}, '{"a":5}', False),
        ({"data.a": {"$or": [{"$lt": 1}, {"$gt": 5}]}}, '{"a":6}', True),
        ({}, "1", True),
        (None, "1", True),
    ],
)
def test_a_value(document: Any, data: str, is_match: bool) -> None:
    assert gets_through(document, data) is is_match


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"data.a": {"$foo": 1}}, "data.a.$foo: there is no such operator"),
        ({"data": {"a": {"$gt": None}}}, "data.a.$gt: write a number or a text"),
        ({"data.a": {"$in": 5}}, "data.a.$in: write a list"),
        ({"data.a": {"$startsWith": 5}}, "data.a.$startsWith: write a text"),
        ({"data.a": {"$exist": "yes"}}, "data.a.$exist: write true or false"),
        ({"$or": {"data.a": 1}}, "$or: write a list of conditions"),
        ({"$or": []}, "$or: write a list of conditions"),
        ({"$or": [5]}, "$or[0]: write an object"),
        ({"total": 5}, "total: a path begins with one of data, type"),
        ({"headers.x": 5}, "headers.x: a path begins with one of data, type"),
        ({"data..a": 5}, "data..a: write a path"),
        ({"data.a[": 5}, "data.a[: write a path"),
        ({"data.a[x]": 5}, "data.a[x]: write a path"),
        ({"": 5}, "write a path"),
        ({"data.a": {"$regex": "(?=a)"}}, "data.a.$regex: The regular expression"),
        ({"data.a": {"$regex": "(a{50}){50}"}}, "data.a.$regex: "),
        ({"data.a": float("inf")}, "data.a: the number is too large"),
        ([], "write an object"),
        ("text", "write an object"),
        (5, "write an object"),
        ({"data.a": "x" * 9000}, "A filter has at most 8192 bytes"),
        ({"$or": [{"data.a": n} for n in range(101)]}, "more than 100 conditions"),
    ],
)
def test_a_bad_document_is_refused_with_its_place(document: Any, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        payload_filter.check(document)
    (message,) = caught.value.messages
    assert words in message


def test_depth_is_bounded() -> None:
    document: Any = {"data.a": 1}
    for _ in range(100):
        document = {"$not": document}
    with pytest.raises(ValidationError, match="in one another"):
        payload_filter.check(document)
    for _ in range(100_000):
        document = {"$not": document}
    with pytest.raises(ValidationError):
        payload_filter.check(document)


@pytest.mark.parametrize("depth", [12, 40, 400, 900, 5000])
def test_an_operand_has_the_depth_of_a_document(depth: int) -> None:
    """One that is deeper could end a maker, or be one that MariaDB does not store."""
    texts = [f'{{"data":{"[" * depth}1{"]" * depth}}}']
    objects = '{"a":' * depth
    texts.append(f'{{"data":{{"$eq":{objects}1{"}" * depth}}}}}')
    for text in texts:
        with pytest.raises(ValueError, match=r"in one another|recursion"):
            payload_filter.of_text(text)
        if depth < 900:
            with pytest.raises(ValidationError, match="in one another"):
                payload_filter.check(json.loads(text))
    assert gets_through({"data": [[[[[[[[1]]]]]]]]}, "[[[[[[[[1.0]]]]]]]]")


def test_no_depth_of_a_payload_is_too_deep_for_a_reason() -> None:
    for depth in range(800, 1100):
        assert reason({"data": 1}, "[" * depth + "]" * depth)


@pytest.mark.parametrize(
    ("document", "data", "words"),
    [
        ({"data": {"total": {"$gt": 100}}}, '{"total":12}', "data.total 12 is not > 100"),
        ({"data": {"total": {"$gt": 100}}}, "{}", "data.total is not there"),
        ({"data.a": {"$exist": False}}, '{"a":1}', "data.a is there"),
        ({"data.a": "x"}, '{"a":"y"}', 'data.a "y" is not = "x"'),
        ({"data.a.$.b": 1}, '{"a":[{"b":2},{"b":3}]}', "data.a.$.b 2, 3 is not = 1"),
        ({"$or": [{"data.a": 1}, {"data.b": 2}]}, '{"a":2,"b":1}',
         "data.a 2 is not = 1; and data.b 1 is not = 2"),
        ({"$not": {"data.a": 1}}, '{"a":1}', '{"data.a": 1} holds, and must not'),
        ({"data.a": 1}, '{"a":' + "9" * 5000 + "}", "The payload is too large"),
        ({"data.a.$": 1}, '{"a":[' + ",".join("2" * 10_001) + "]}", "The payload is too large"),
    ],
)  # fmt: skip
def test_the_reason(document: Any, data: str, words: str) -> None:
    assert words in reason(document, data)


def test_a_reason_without_values_has_none() -> None:
    node = payload_filter.compiled({"data.name": "Bob"})
    assert node
    why = filtered.mismatch(node, event('{"name":"Anna"}'))
    assert why
    assert "Anna" in why.reason
    assert "Anna" not in why.masked


@pytest.mark.parametrize(
    "document",
    [
        {"data.name": {"$neq": "Anna"}},
        {"data.name": {"$nin": ["Anna"]}},
        {"data.name": {"$not": {"$startsWith": "Anna"}}},
        {"$not": {"data.name": "Anna"}},
        {"$or": [{"data.name": {"$neq": "Anna"}}, {"data.name": "Bob"}]},
    ],
)
def test_a_reason_without_values_does_not_say_what_the_event_has(document: Any) -> None:
    node = payload_filter.compiled(document)
    assert node
    why = filtered.mismatch(node, event('{"name":"Anna"}'))
    assert why
    assert "Anna" in why.reason
    assert "Anna" not in why.masked


def test_more_elements_than_are_compared_match_nothing() -> None:
    many = json.dumps({"a": [1] * 10_001})
    assert not gets_through({"data.a": 1}, many)
    assert not gets_through({"$not": {"data.a": 2}}, many)


@pytest.mark.parametrize(
    ("document", "data"),
    [
        ({"$or": [{"data.$": {"$startsWith": f"x{n}"}} for n in range(100)]}, ["a"] * 9_999),
        ({"data.$": {"$in": list(range(1000, 2300))}}, [7] * 9_999),
        ({"data.$": {"$in": [[n] for n in range(1000, 1900)]}}, [[7]] * 9_999),
        ({"$or": [{"data.$": {"$in": [n]}} for n in range(10)]},
         f"[{','.join(['1e999999999'] * 9_000)}]"),
        ({"data.$": {"$in": ["x"]}}, json.loads("[" * 900 + "]" * 900)),
        ({"data": {"$or": [{"$regex": f"(a?b?){{150}}c{n}"} for n in range(90)]}},
         ["ab" * 4_990] * 25),
    ],
)  # fmt: skip
def test_a_filter_takes_a_bounded_time(document: Any, data: Any) -> None:
    """Some of these took from seconds to a minute."""
    text = data if isinstance(data, str) else json.dumps(data)
    node, looked_at = payload_filter.compiled(document), event(text)
    assert node
    began = time.process_time()
    assert not filter_conditions.matches(node, looked_at)
    assert filtered.mismatch(node, looked_at)
    assert time.process_time() - began < 1.5


# -- bad inputs -----------------------------------------------------------------------------------
ODD_NAMES = st.sampled_from(
    ["", "$", ".", "..", "$.", "$.a", "data", "data.", "data..a", "data.$", "data.$or", "data[0]",
     "data.a[0].b", "data.a[", "data.a]", "data.[0]", "data.a[9999999]", "data. a", "data.\ud800",
     "type", "$or", "$and", "$not", "$gt", "$in", "$exist", "$regex", "$foo", "\x00", "é"]
)  # fmt: skip
ODD_NUMBERS = st.sampled_from(
    ["NaN", "-Infinity", "1e400", "1e999999999999", "0e999999999", "-0", "1" * 5000, "01", "1.",
     f"1.{'0' * 5000}", "0.1e-99999", str(2**64)]
)  # fmt: skip
odd_values = st.recursive(
    st.none() | st.booleans() | ODD_NAMES | st.integers(-(10**400), 10**400)
    | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_NAMES, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
odd_payloads = st.one_of(
    odd_values.map(json.dumps),
    ODD_NUMBERS,
    ODD_NUMBERS.map(lambda number: f'{{"a":[{number},1]}}'),
    st.text(max_size=9),
    st.sampled_from(
        ['{"a":1,"a":2}', '"\\ud800"', "[" * 2000 + "]" * 2000, '{"a":' * 2000 + "1" + "}" * 2000,
         '{"$or":1,"a.b":2,"[0]":3,"":4,"$":5}', ""]
    ),
)  # fmt: skip


@given(odd_values, odd_payloads)
def test_nothing_odd_stops_a_maker(document: Any, data: str) -> None:
    try:
        node = payload_filter.compiled(document)
    except ValidationError:
        return
    if node is None:
        return
    looked_at = event(data)
    is_match = filter_conditions.matches(node, looked_at)
    why = filtered.mismatch(node, looked_at)
    assert (why is None) == is_match
    # As it is stored, and read by a maker.
    stored = payload_filter.of_text(json.dumps(document))
    assert stored is None or filter_conditions.matches(stored, looked_at) == is_match


# -- beside a slow and simple evaluation ---------------------------------------------------------
names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.0])
scalars = st.none() | st.booleans() | numbers | st.sampled_from(["", "a", "ab", "1"])
payloads = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
conditions = st.one_of(
    scalars,
    st.builds(lambda v: {"$eq": v}, scalars),
    st.builds(lambda v: {"$neq": v}, scalars),
    st.builds(lambda o, v: {o: v}, st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), numbers),
    st.builds(lambda v: {"$in": v}, st.lists(scalars, max_size=3)),
    st.builds(lambda v: {"$nin": v}, st.lists(scalars, max_size=3)),
    st.builds(lambda v: {"$exist": v}, st.booleans()),
    st.builds(lambda v: {"$startsWith": v}, st.sampled_from(["", "a", "ab"])),
)
paths = st.lists(names | st.sampled_from(["$"]), min_size=1, max_size=3).map(
    lambda steps: ".".join(["data", *steps])
)
documents = st.recursive(
    st.dictionaries(paths, conditions, min_size=1, max_size=2),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"$or": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: {"$and": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda part: {"$not": part}, inner),
    ),
    max_leaves=4,
)


def same(left: Any, right: Any) -> bool:
    return json.dumps(canonical(left), sort_keys=True) == json.dumps(
        canonical(right), sort_keys=True
    )


def canonical(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return {"number": str(Decimal(str(value)).normalize())}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return {f"name {name}": canonical(inner) for name, inner in value.items()}


def reached(value: Any, steps: list[str]) -> list[Any]:
    if not steps:
        return [value]
    if steps[0] == "$":
        items = value if isinstance(value, list) else []
        return [leaf for item in items for leaf in reached(item, steps[1:])]
    if isinstance(value, dict) and steps[0] in value:
        return reached(value[steps[0]], steps[1:])
    return []


def slow(document: Any, data: Any) -> bool:
    for name, inner in document.items():
        if name == "$or":
            holds = any(slow(part, data) for part in inner)
        elif name == "$and":
            holds = all(slow(part, data) for part in inner)
        elif name == "$not":
            holds = not slow(inner, data)
        else:
            values = reached({"data": data}, name.split("."))
            candidates = [*values, *(e for v in values if isinstance(v, list) for e in v)]
            ((sign, operand),) = (
                inner.items() if isinstance(inner, dict) and inner else [("$eq", inner)]
            )
            if sign == "$exist":
                holds = bool(values) is operand
            else:
                holds = any(slow_test(sign.replace("$n", "$"), v, operand) for v in candidates)
                holds = holds is not sign.startswith("$n")
        if not holds:
            return False
    return True


def slow_test(sign: str, value: Any, operand: Any) -> bool:
    if sign == "$eq":
        return same(value, operand)
    if sign == "$in":
        return any(same(value, choice) for choice in operand)
    if sign == "$startsWith":
        return isinstance(value, str) and value[: len(operand)] == operand
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return {"$gt": value > operand, "$gte": value >= operand, "$lt": value < operand,
            "$lte": value <= operand}[sign]  # fmt: skip


@given(documents, payloads)
def test_it_says_what_a_simple_evaluation_says(document: Any, data: Any) -> None:
    node = payload_filter.compiled(document)
    assert node
    looked_at = event(json.dumps(data))
    is_match = filter_conditions.matches(node, looked_at)
    assert is_match is slow(document, data)
    assert (filtered.mismatch(node, looked_at) is None) is is_match
