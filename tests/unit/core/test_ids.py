"""What an id says, and the way between times and ids. Making them is tested on real databases."""

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from msgplatform.core.data import ids

FIRST = datetime(2025, 1, 1, tzinfo=UTC)
LAST = datetime(2094, 1, 1, tzinfo=UTC)
moments = st.datetimes(
    min_value=FIRST.replace(tzinfo=None),
    max_value=LAST.replace(tzinfo=None),
    timezones=st.sampled_from(
        [UTC, timezone(timedelta(hours=8)), timezone(timedelta(hours=-3, minutes=-30))]
    ),
)
an_id = st.integers(0, (1 << 63) - 1)


def test_the_layout() -> None:
    block = ids.Block(base=5, node=3, count=2)
    assert block.ids([1, 255]) == [(5 << 15) + (3 << 8) + 1, (6 << 15) + (3 << 8) + 255]


def test_the_largest_id_is_a_positive_bigint() -> None:
    block = ids.Block(base=(1 << 48) - 1, node=127, count=1)
    assert block.ids([255]) == [(1 << 63) - 1]
    assert ids.datetime_of((1 << 63) - 1).year == 2094


@given(
    base=st.integers(0, 1 << 47),
    node=st.integers(0, 127),
    parents=st.lists(an_id, min_size=1, max_size=50),
)
def test_children_share_the_shard_of_their_parent(base: int, node: int, parents: list[int]) -> None:
    made = ids.Block(base, node, len(parents)).ids(parents)
    assert made == sorted(set(made))
    for parent, child in zip(parents, made, strict=True):
        assert ids.bucket_of(child) == ids.bucket_of(parent)
        assert (child >> 8) & 127 == node
        for n in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            assert child & (n - 1) == parent & (n - 1)


def test_a_block_gives_no_more_than_it_has() -> None:
    block = ids.Block(base=1, node=0, count=2)
    assert len(block.ids([1])) == 1
    with pytest.raises(ValueError, match="3 ids wanted, 2 reserved"):
        block.ids([1, 2, 3])


@given(moment=moments)
def test_the_first_id_at_a_time_is_not_before_it_and_nothing_fits_between(moment: datetime) -> None:
    first = ids.first_id_at(moment)
    assert ids.datetime_of(first) >= moment
    if first:
        assert ids.datetime_of(first - 1) < moment


@given(an_id, moments)
def test_asking_by_id_is_asking_by_time(id: int, moment: datetime) -> None:
    assert (id >= ids.first_id_at(moment)) == (ids.datetime_of(id) >= moment)


@given(an_id, an_id)
def test_later_ids_are_not_earlier_times(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert ids.datetime_of(low) <= ids.datetime_of(high)


def test_times_at_the_edges() -> None:
    assert ids.first_id_at(FIRST) == 0
    assert ids.first_id_at(FIRST - timedelta(days=1)) == 0
    assert ids.datetime_of(0) == FIRST
    assert ids.first_id_at(FIRST + timedelta(seconds=1)) == 128_000 << 15
    with pytest.raises(ValueError, match="zone"):
        ids.first_id_at(datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_bucket_depends_on_the_system_and_the_key() -> None:
    # crc32 is fixed for ever: a changed bucket would let a repeated key through as a new one.
    assert ids.bucket(1, "order-1") == 0x1B
    assert ids.bucket(7, "订单-1") == ids.bucket(7, "订单-1")
    assert len({ids.bucket(biz, "order-1") for biz in range(100)}) > 50


@pytest.mark.parametrize("keys", [[f"order-{n}" for n in range(25_600)], [None] * 25_600])
def test_buckets_are_spread_evenly(keys: list[str | None]) -> None:
    counts = Counter(ids.bucket(1, key) for key in keys)
    assert set(counts) == set(range(256))
    assert 50 < min(counts.values()) <= max(counts.values()) < 150  # 100 expected, sigma 10
