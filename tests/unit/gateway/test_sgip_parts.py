"""Messages in several parts: which part a Deliver is, and the text of all of them."""

import itertools

import pytest
from hypothesis import given, strategies as st

from gateway.sgip import Part, part_of, split, text_of
from gateway.sgip.text.parts import udh
from tests.unit.gateway.sgip_support import deliver

TEXT = "长短信测试内容" * 30


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_parts_in_any_order(order: tuple[int, ...]) -> None:
    made = split(TEXT, 7)
    parts = [
        part_of(deliver(n, content, tp_udhi=made.tp_udhi, message_coding=made.message_coding))
        for n, content in enumerate(made.contents)
    ]
    assert {(part.reference, part.total) for part in parts} == {(7, 4)}
    found = {parts[at].number: parts[at].payload for at in order}
    assert text_of(found, made.message_coding) == TEXT


def test_a_message_of_one_part() -> None:
    assert part_of(deliver(content=b"hello")) == Part(0, 1, 1, b"hello")


def test_a_text_of_which_parts_are_missing() -> None:
    assert text_of({3: b"c", 1: b"a"}, 0) == "ac"


def test_a_character_that_the_sender_cut_is_whole_again() -> None:
    encoded = ("a" + "长" * 100).encode("gbk")
    cut = [encoded[:134], encoded[134:]]
    parts = [
        part_of(deliver(n, udh(1, 2, n) + payload, tp_udhi=1, message_coding=15))
        for n, payload in enumerate(cut, 1)
    ]
    assert text_of({part.number: part.payload for part in parts}, 15) == "a" + "长" * 100


@pytest.mark.parametrize(
    ("content", "udhi", "part"),
    [
        ("0500032a020161", 1, Part(42, 2, 1, b"a")),
        ("060804012a020161", 1, Part(298, 2, 1, b"a")),
        ("0500032a020161", 0, Part(42, 2, 1, b"a")),  # TP_udhi forgotten
        ("060804012a020161", 0, Part(298, 2, 1, b"a")),
        ("0a0504158a00000003070201", 1, Part(0, 1, 1, b"\x01")),  # too short by one
        ("0b0504158a00000003070201", 1, Part(7, 2, 1, b"")),
        ("0b0504158a0000000307020161", 1, Part(7, 2, 1, b"a")),  # after a port
        ("060504158a000061", 1, Part(0, 1, 1, b"a")),  # a port only
        ("0500032a000061", 1, Part(0, 1, 1, b"a")),  # part 0 of 0
        ("0500032a020361", 1, Part(0, 1, 1, b"a")),  # part 3 of 2
        ("0500032a020361", 0, Part(0, 1, 1, bytes.fromhex("0500032a020361"))),
        ("0500032a", 0, Part(0, 1, 1, bytes.fromhex("0500032a"))),
        ("0500032a", 1, Part(0, 1, 1, bytes.fromhex("0500032a"))),  # cut short
        ("050003", 0, Part(0, 1, 1, bytes.fromhex("050003"))),
        ("0061", 1, Part(0, 1, 1, bytes.fromhex("0061"))),  # a header of nothing
        ("050004010261", 1, Part(0, 1, 1, b"")),
        ("", 1, Part(0, 1, 1, b"")),
        ("", 0, Part(0, 1, 1, b"")),
        ("61", 0, Part(0, 1, 1, b"a")),
    ],
)
def test_headers(content: str, udhi: int, part: Part) -> None:
    assert part_of(deliver(content=bytes.fromhex(content), tp_udhi=udhi)) == part


@given(st.binary(max_size=160), st.integers(0, 255))
def test_no_content_breaks_it(content: bytes, udhi: int) -> None:
    part = part_of(deliver(content=content, tp_udhi=udhi))
    assert content.endswith(part.payload)
    assert 1 <= part.number <= part.total


def test_each_part_is_read_in_its_own_coding() -> None:
    """An SMSC turns a part that is Latin into ASCII; characters are cut in two between parts."""
    chinese, latin = "你好，".encode("utf-16-be"), b"call 10010"
    assert text_of({1: chinese, 2: latin}, {1: 8, 2: 0}) == "你好，call 10010"
    assert text_of({2: chinese, 1: latin}, {2: 8, 1: 0}) == "call 10010你好，"
    assert text_of({1: latin, 2: chinese[:3], 3: chinese[3:]}, {1: 0, 2: 8, 3: 8}) == (
        "call 10010你好，"
    )
