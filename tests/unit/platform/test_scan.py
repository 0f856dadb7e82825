"""Bounded searches: what is found, where to go on, and what is said when the bound was reached."""

from datetime import UTC, datetime

import pytest

from msgplatform.core.data import ids
from msgplatform.core.flows.page import Hit
from msgplatform.messages.scan import Candidates, Scan, scan

PAGE = 10


class Rows:
    """Ids from `newest` down to 1, read by ten; every `step`th one matches."""

    def __init__(self, newest: int, step: int) -> None:
        self.newest, self.step = newest, step
        self.read_ids: list[int] = []

    def __call__(self, before: int) -> Candidates:
        page = list(range(min(self.newest, before - 1), 0, -1))[:PAGE]
        self.read_ids += page
        return Candidates([(pk, pk % self.step == 0) for pk in page], len(page) < PAGE)


def test_it_stops_at_the_limit() -> None:
    rows = Rows(100, step=1)
    assert scan(rows, 1000, limit=5, max_candidates=1000) == Scan([100, 99, 98, 97, 96], 96)
    assert len(rows.read_ids) == PAGE


def test_pages_meet_without_a_gap() -> None:
    rows, found, before = Rows(95, step=3), list[int](), 1000
    while True:
        page = scan(rows, before, limit=4, max_candidates=1000)
        found += page.matches
        if page.last is None:
            break
        before = page.last
    assert found == [pk for pk in range(95, 0, -1) if pk % 3 == 0]


def test_it_stops_at_the_bound_and_goes_on_from_there() -> None:
    rows = Rows(95, step=1000)
    page = scan(rows, 1000, limit=4, max_candidates=25)
    assert page == Scan([], 66, 30)
    assert scan(rows, 66, limit=4, max_candidates=1000) == Scan([])
    assert rows.read_ids == list(range(95, 0, -1)), "each is looked at once"


@pytest.mark.parametrize(("newest", "before"), [(5, None), (6, 2)])
def test_there_is_a_next_page_only_when_there_is_more(newest: int, before: int | None) -> None:
    assert scan(Rows(newest, step=1), 1000, limit=5, max_candidates=1000).last == before


def test_nothing_at_all() -> None:
    assert scan(Rows(0, step=1), 1000, limit=5, max_candidates=1000) == Scan([])


def test_what_is_said() -> None:
    at = datetime(2026, 11, 20, 8, tzinfo=UTC)
    hit = Hit("7", "order.paid", "delivered", at, "orders")
    last = ids.first_id_at(at)
    assert Scan([7]).result([hit], "", "The archive cannot be read.").notice == (
        "The archive cannot be read."
    )
    cut = Scan([], last, 30).result([], "One.")
    assert cut.cursor == str(last)
    assert cut.notice.startswith("One. 30 messages were looked at, back to ")
    assert Scan([7], last).result([hit]).notice == "", "the page is full: nothing to explain"
