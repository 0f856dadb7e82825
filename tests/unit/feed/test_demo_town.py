"""The demo's account: who sees what by its own list, and each way in which a timeline is wrong."""

import pytest

from demo.account import Differences, Records, compare
from demo.feed import town as town_module
from demo.feed.town import FRIEND, PAGE, STAR, VIP, Population, Post, Town

TOPICS = (FRIEND, VIP)


def town(*changes: tuple[str, str, str], author: str = "ann") -> Town:
    """An author with a post of each topic, 1 and 2, after these changes."""
    made = Town()
    for change in changes:
        assert made.change(*change)
    for number, topic in enumerate(TOPICS, 1):
        made.add(Post(str(number), author, topic, f"{topic} post"))
    return made


def ids(posts: Records) -> list[str]:
    return [id for id, _ in posts]


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ([], []),
        ([("befriend", "bob", "ann")], ["2", "1"]),
        ([("befriend", "ann", "bob")], ["2", "1"]),
        ([("follow", "bob", "ann")], ["2"]),
        ([("follow", "ann", "bob")], []),
        ([("befriend", "ann", "bob"), ("follow", "bob", "ann"), ("unfriend", "bob", "ann")], ["2"]),
        ([("befriend", "ann", "bob"), ("unfollow", "bob", "ann")], ["2", "1"]),
        ([("befriend", "ann", "bob"), ("follow", "bob", "ann"), ("block", "ann", "bob")], []),
        ([("block", "bob", "ann"), ("unblock", "bob", "ann"), ("follow", "bob", "ann")], ["2"]),
    ],
)
def test_who_sees_what(changes: list[tuple[str, str, str]], seen: list[str]) -> None:
    assert ids(town(*changes).timeline("bob")) == seen


def test_an_author_sees_their_own_posts_which_are_not_unread() -> None:
    made = town(("befriend", "ann", "bob"))
    assert ids(made.timeline("ann")) == ["2", "1"]
    assert [made.unread(uid, made.timeline(uid)) for uid in ("ann", "bob")] == [0, 2]
    made.read["bob"] = 1
    assert made.unread("bob", made.timeline("bob")) == 1
    made.posts["2"].deleted = True
    assert ids(made.timeline("bob")) == ["1"]
    assert made.unread("bob", made.timeline("bob")) == 0


@pytest.mark.parametrize("who", [("ann", "bob"), ("bob", "ann")])
def test_a_block_forbids_new_relations_of_both(who: tuple[str, str]) -> None:
    made = town(("block", "ann", "bob"))
    assert not made.change("befriend", *who)
    assert not made.change("follow", *who)
    assert made.timeline("bob") == []


def test_posts_are_in_the_order_of_their_numbers() -> None:
    made = town()
    for id in ("10", "9"):
        made.add(Post(id, "ann", VIP, "x"))
    assert ids(made.timeline("ann")) == ["10", "9", "2", "1"]


NEWER, OLDER = ("2", ("ann", VIP, "vip post")), ("1", ("ann", FRIEND, "friend post"))


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ([NEWER, OLDER], Differences()),
        ([NEWER], Differences(["bob"], missing=["1"])),
        ([], Differences(["bob"], missing=["2", "1"])),
        ([NEWER, OLDER, OLDER], Differences(["bob"], extra=["1"])),
        ([("3", ("cid", VIP, "x")), NEWER, OLDER], Differences(["bob"], extra=["3"])),
        ([OLDER, NEWER], Differences(["bob"], different=["1", "2"])),
        ([NEWER, ("1", ("ann", FRIEND, "another text"))], Differences(["bob"], different=["1"])),
    ],
)
def test_each_difference_is_found(held: Records, found: Differences) -> None:
    expected = {uid: town(("befriend", "ann", "bob")).timeline(uid) for uid in ("ann", "bob")}
    assert compare(expected, {"bob": held}, is_ordered=True) == found


def test_the_town_is_large_enough_and_the_same_in_each_run() -> None:
    people = town_module.citizens(1_000)
    relations = Population(people).relations()
    assert relations == Population(people).relations()
    made = Town()
    assert all(made.change(*relation) for relation in relations)
    assert len(made.friends) + len(made.follows) > 50_000
    recipients = dict.fromkeys((PAGE, STAR), 0)
    for author, _reader in [*made.friends, *made.follows]:
        if author in recipients:
            recipients[author] += 1
    assert recipients[PAGE] < 350 < 400 < recipients[STAR]
    assert not set(Population(people).newcomers) & set(Population(people).travellers)
