"""A gateway's connections, dealt out to its senders: every one to somebody, none to two."""

from hypothesis import given, strategies as st

from gateway.presence import process_name, share


@given(st.integers(0, 40), st.sets(st.text("abc", min_size=1), min_size=1, max_size=12))
def test_all_are_dealt_out_evenly(connections: int, senders: set[str]) -> None:
    shares = [share(connections, sender, senders) for sender in sorted(senders)]
    assert sum(shares) == connections
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True), "the eldest first"


def test_who_is_not_known_yet_counts_itself() -> None:
    assert share(3, "b", ()) == 3
    assert share(3, "b", ["a"]) == 1


def test_names_sort_by_age() -> None:
    names = [process_name() for _ in range(50)]
    assert len(set(names)) == 50
    assert [name[:16] for name in names] == sorted(name[:16] for name in names)
