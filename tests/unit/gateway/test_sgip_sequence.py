"""Sequences, node ids, times and telephone numbers."""

from datetime import datetime, timedelta, timezone

import pytest

from gateway.sgip import (
    SequenceSource,
    absolute_time,
    international,
    searched_numbers,
    smg_node_id,
    sp_node_id,
    spellings,
    timestamp,
    written_form,
)

CHINA = timezone(timedelta(hours=8))
MOMENT = datetime(2026, 11, 20, 20, 32, 25, tzinfo=CHINA)


def test_the_example_of_the_specification() -> None:
    assert timestamp(MOMENT) == 1120203225 == 0x42C4F1D9
    assert timestamp(datetime(2026, 3, 1, 15, 12, 18, tzinfo=CHINA)) == 301151218


@pytest.mark.parametrize("hours", [-8, 0, 3, 8])
def test_times_are_those_of_the_operator_s_clock(hours: int) -> None:
    moment = MOMENT.astimezone(timezone(timedelta(hours=hours)))
    assert timestamp(moment) == 1120203225
    assert SequenceSource(7).next(moment) == (7, 1120203225, 0)
    assert absolute_time(moment) == "261120203225032+"


@pytest.mark.parametrize(
    ("area", "corp", "node"),
    [
        ("010", 99999, 3010099999),
        ("010", "99999", 0xB36A7B1F),
        ("025", 1, 3025000001),
        ("0731", "00042", 3073100042),
    ],
)
def test_node_ids(area: str, corp: str | int, node: int) -> None:
    assert sp_node_id(area, corp) == node


@pytest.mark.parametrize(("area", "number", "node"), [("010", 1, 101001), ("0731", 9, 107319)])
def test_node_ids_of_gateways(area: str, number: int, node: int) -> None:
    assert smg_node_id(area, number) == node


@pytest.mark.parametrize(("area", "number"), [("10", 1), ("010", 10), ("010", -1)])
def test_node_ids_of_gateways_that_cannot_be(area: str, number: int) -> None:
    with pytest.raises(ValueError, match="area code"):
        smg_node_id(area, number)


@pytest.mark.parametrize(
    ("area", "corp"), [("10", 1), ("", 1), ("07311", 1), ("0a", 1), ("010", 100000), ("010", -1)]
)
def test_node_ids_that_cannot_be(area: str, corp: int) -> None:
    with pytest.raises(ValueError, match="area code"):
        sp_node_id(area, corp)


def test_absolute_times_have_16_characters() -> None:
    assert absolute_time(MOMENT) == "261120203225032+"


def test_sequences_count_up_and_wrap() -> None:
    source = SequenceSource(3010099999, start=2**32 - 2)
    assert source.next(MOMENT) == (3010099999, 1120203225, 2**32 - 2)
    assert [counter for _, _, counter in source.take(3, MOMENT)] == [2**32 - 1, 0, 1]


@pytest.mark.parametrize(("node", "start"), [(-1, 0), (2**32, 0), (1, -1)])
def test_a_source_that_cannot_be(node: int, start: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        SequenceSource(node, start)


@pytest.mark.parametrize(
    "written",
    ["13012345678", "8613012345678", "+8613012345678", "008613012345678", " +86 130-1234-5678 "],
)
def test_a_number_is_the_same_however_it_is_written(written: str) -> None:
    assert international(written) == "8613012345678"


def test_a_number_may_be_written_with_86_and_without() -> None:
    assert spellings("8613012345678") == ("8613012345678", "868613012345678", "13012345678")
    assert spellings("10690001") == ("10690001", "8610690001")


@pytest.mark.parametrize("other", ["10690001", "85261234567", "8601012345678", ""])
def test_what_is_no_chinese_mobile_number_stays(other: str) -> None:
    assert international(other) == other
    assert international("+" + other) == other


@pytest.mark.parametrize("written", ["+1 312 555 1234", "001-312-555-1234", "+13125551234"])
def test_a_foreign_number_of_eleven_digits_is_no_chinese_mobile_number(written: str) -> None:
    assert international(written) == "13125551234"


@pytest.mark.parametrize(
    ("number", "written"),
    [("13125551234", "+13125551234"), ("8613012345678", "8613012345678"), ("10655", "10655")],
)
def test_a_number_is_written_so_that_it_is_read_as_itself(number: str, written: str) -> None:
    assert written_form(number) == written
    assert international(written) == number


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("131-2555-1234", ("8613125551234", "13125551234")),
        ("+13125551234", ("13125551234",)),
        ("8613125551234", ("8613125551234",)),
        ("10655", ("10655",)),
    ],
)
def test_digits_without_86_are_searched_as_both_numbers(
    text: str, numbers: tuple[str, ...]
) -> None:
    assert searched_numbers(text) == numbers
