"""Cells: how the setting is written, and that no two cells make one id."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import given, strategies as st

from msgplatform import env
from msgplatform.core.cells import Cell
from msgplatform.core.data import ids

CELLS = 16
BLOCK = 500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("16/16", "numbered from 0, and the last of 16 is 15"),
        ("3/12", "the number of cells, 12, must be 1, 2, 4"),
        ("0/512", "the number of cells, 512, must be"),
        ("0/0", "the number of cells, 0, must be"),
        ("a/b", "a number, a slash and the number of cells"),
        ("3", "a number, a slash"),
        ("-1/16", "a number, a slash"),
        ("3/16/2", "a number, a slash"),
        ("٣/16", "a number, a slash"),
    ],
)
def test_a_wrong_cell_is_a_problem_that_says_how_to_write_it(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "problems", [])
    monkeypatch.setenv("CELL", text)
    assert env.cell("CELL") == Cell()
    (problem,) = env.problems
    assert problem.variable == "CELL"
    assert words in problem.message
    assert "such as 3/16" in problem.hint


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_every_cell_can_be_written_and_read(count: int) -> None:
    for number in range(count):
        cell = Cell(number, count)
        assert Cell.parse(str(cell)) == cell
        assert cell.code == ("" if count == 1 else f"{number:02x}")


@pytest.mark.parametrize(
    ("text", "words"),
    [("3", "of the form"), ("x=https://a", "of the form"), ("3=ftp://a", "no http://"),
     ("999=https://a.b", "of the form")],
)  # fmt: skip
def test_addresses_of_cells(text: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "problems", [])
    monkeypatch.setenv("CELL_URLS", "0=https://a.example.com/, 3=http://b.example.com:8000")
    urls = {0: "https://a.example.com", 3: "http://b.example.com:8000"}
    assert (env.urls_by_cell("CELL_URLS"), env.problems) == (urls, [])
    monkeypatch.setenv("CELL_URLS", text)
    assert env.urls_by_cell("CELL_URLS") == {}
    assert words in env.problems[0].message


def _ids_of_cells(settings: Any, buckets: list[int]) -> Iterator[int]:
    """Ids of the same ticks, node and buckets in each cell: the worst that can happen."""
    for number in range(CELLS):
        settings.CELL = Cell(number, CELLS)
        for id in ids.Block(5, 3, len(buckets)).ids(buckets):
            assert settings.CELL.number_of(id) == number
            yield id


def test_cells_with_the_same_ticks_nodes_and_buckets_make_no_id_twice(
    settings: Any,
) -> None:
    buckets = [number % 256 for number in range(BLOCK)]
    made = list(_ids_of_cells(settings, buckets))
    assert len(set(made)) == len(made) == CELLS * BLOCK
    # Without cells they would be the same.
    settings.CELL = Cell()
    assert ids.Block(5, 3, BLOCK).ids(buckets) == ids.Block(5, 3, BLOCK).ids(buckets)


@given(number=st.integers(0, 255), parents=st.lists(st.integers(0, (1 << 63) - 1), min_size=1))
@pytest.mark.parametrize("count", [1, 2, 16, 256])
def test_an_id_keeps_the_rest_of_its_bucket(count: int, number: int, parents: list[int]) -> None:
    cell = Cell(number % count, count)
    with override_settings(CELL=cell):
        made = ids.Block(7, 1, len(parents)).ids(parents)
    for parent, child in zip(parents, made, strict=True):
        assert child & (count - 1) == cell.number
        assert ids.bucket_of(child) // count == ids.bucket_of(parent) // count
