"""Messages in several parts: any order, any connection, copies, and parts that never come."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sgip import Coding, Deliver, Part, Reassembler, SplitOptions, part_of, split
from gateway.sgip.parts import udh
from tests.unit.gateway.sgip_support import deliver

TEXT = "长短信测试内容" * 30


def parts_of(
    text: str, reference: int = 7, user: str = "8613012345678", **options: bool
) -> list[Deliver]:
    made = split(text, reference, SplitOptions(**options))  # type: ignore[arg-type]
    return [
        Deliver(
            (1, 2, reference * 1000 + n), user, "10690001", 0, made.tp_udhi, made.message_coding, c
        )
        for n, c in enumerate(made.contents)
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("wide", [False, True])
def test_parts_in_any_order(order: tuple[int, ...], wide: bool) -> None:
    parts = parts_of(TEXT, wide_reference=wide)
    assert len(parts) == 4
    reassembler = Reassembler()
    done = [found for at in order for found in reassembler.add(parts[at], 0)]
    (message,) = done
    assert (message.text, message.missing) == (TEXT, ())
    assert message.delivers == tuple(parts)
    assert (message.user_number, message.sp_number) == ("8613012345678", "10690001")
    assert message.message_coding == Coding.GBK
    assert len(reassembler) == 0


@given(st.randoms(use_true_random=False))
def test_messages_of_many_senders_mixed(rng: random.Random) -> None:
    texts = {f"86130000000{n:02d}": f"message {n} " + "长" * 60 * n for n in range(8)}
    parts = [part for user, text in texts.items() for part in parts_of(text, 1, user)]
    parts += rng.sample(parts, 3)  # copies of some
    rng.shuffle(parts)
    reassembler = Reassembler()
    found = [message for part in parts for message in reassembler.add(part, 0)]
    assert {message.user_number: message.text for message in found} == texts


def test_a_message_of_one_part_is_there_at_once() -> None:
    (message,) = Reassembler().add(deliver(content=b"hello"), 0)
    assert (message.text, message.missing) == ("hello", ())


def test_what_waits_too_long_is_given_as_far_as_it_came() -> None:
    reassembler = Reassembler(timeout=100)
    parts = parts_of("a" * 300)
    other = parts_of("b" * 300, user="8613099999999")
    assert reassembler.add(parts[2], 0) == []
    assert reassembler.add(parts[0], 50) == []  # does not wait longer for it
    assert reassembler.add(other[0], 60) == []
    assert reassembler.expire(99) == []
    (message,) = reassembler.expire(100)
    assert message.missing == (2,)
    assert message.text == "a" * (134 + 300 - 268)
    assert len(reassembler) == 1
    assert [message.missing for message in reassembler.expire(160)] == [(2, 3)]
    assert reassembler.expire(1000) == []


def test_a_reference_that_is_used_again_begins_a_new_message() -> None:
    reassembler = Reassembler()
    first, second = parts_of("a" * 300, 7), parts_of("b" * 300, 7)
    assert reassembler.add(first[0], 0) == []
    assert reassembler.add(first[0], 1) == []  # a copy is no new message
    (cut_short,) = reassembler.add(second[0], 2)
    assert (cut_short.text, cut_short.missing) == ("a" * 134, (2, 3))
    assert reassembler.add(second[1], 3) == []
    assert [message.text for message in reassembler.add(second[2], 4)] == ["b" * 300]


def test_a_character_that_the_sender_cut_is_whole_again() -> None:
    encoded = ("a" + "长" * 100).encode("gbk")
    cut = [encoded[:134], encoded[134:]]
    reassembler = Reassembler()
    found = [
        message
        for n, payload in enumerate(cut, 1)
        for message in reassembler.add(
            deliver(n, udh(1, 2, n) + payload, tp_udhi=1, message_coding=15), 0
        )
    ]
    assert [message.text for message in found] == ["a" + "长" * 100]


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
