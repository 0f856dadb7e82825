"""Chunks hold everything, in order, and none is too long."""

from hypothesis import given, strategies as st

from msgplatform.core.data import chunks


@given(st.lists(st.integers(), max_size=50), st.integers(1, 12))
def test_all_in_order_and_none_too_long(items: list[int], size: int) -> None:
    made = list(chunks(items, size))
    assert [item for chunk in made for item in chunk] == items
    assert all(len(chunk) == size for chunk in made[:-1])
    assert all(0 < len(chunk) <= size for chunk in made[-1:])
