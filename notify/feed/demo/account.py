"""What each reader must see, from the demo's own list of what was answered.

Standard library only, because it must not share code with what it checks. Nothing here is quick or
clever: a timeline is made by looking at every post, one after the other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FRIEND, VIP = "friend", "vip"


@dataclass
class Post:
    """A post as it is now. `id` is a string of digits, as the platform gives it."""

    id: str
    uid: str
    topic: str
    data: str
    deleted: bool = False


Shown = tuple[str, str, str, str]  # id, author, topic, data: what a reader sees of a post


@dataclass
class Town:
    """Everybody's posts and relations. Several threads may use it."""

    posts: dict[str, Post] = field(default_factory=dict)
    friends: set[tuple[str, str]] = field(default_factory=set)  # both ways round
    follows: set[tuple[str, str]] = field(default_factory=set)  # (author, reader)
    blocks: set[tuple[str, str]] = field(default_factory=set)  # (who is blocked, by whom)
    read: dict[str, int] = field(default_factory=dict)  # the id up to which a reader has read
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, action: str, uid: str, other: str) -> bool:
        """`uid` befriends, follows, blocks … `other`; False when a block forbids it."""
        with self.lock:
            blocked = {(uid, other), (other, uid)} & self.blocks
            if action in ("befriend", "follow") and blocked:
                return False
            if action == "befriend":
                self.friends |= {(uid, other), (other, uid)}
            elif action == "follow":
                self.follows.add((other, uid))
            elif action == "unfollow":
                self.follows.discard((other, uid))
            elif action == "unblock":
                self.blocks.discard((other, uid))
            else:  # unfriend, block
                self.friends -= {(uid, other), (other, uid)}
            if action == "block":
                self.follows -= {(uid, other), (other, uid)}
                self.blocks.add((other, uid))
            return True

    def add(self, post: Post) -> None:
        with self.lock:
            self.posts[post.id] = post

    def timeline(self, reader: str) -> list[Shown]:
        """What this reader sees, newest first."""
        with self.lock:
            seen = [
                post
                for post in self.posts.values()
                if not post.deleted and self.is_shown(reader, post.uid, post.topic)
            ]
        seen.sort(key=lambda post: int(post.id), reverse=True)
        return [(post.id, post.uid, post.topic, post.data) for post in seen]

    def unread(self, reader: str, timeline: Sequence[Shown]) -> int:
        """How many posts of others in their timeline are newer than what this reader has read."""
        up_to = self.read.get(reader, 0)
        return sum(int(id) > up_to and author != reader for id, author, _, _ in timeline)

    def is_shown(self, reader: str, author: str, topic: str) -> bool:
        """Whether this reader sees what this author posts on this topic."""
        return (
            author == reader
            or (author, reader) in self.friends
            or (topic == VIP and (author, reader) in self.follows)
        )


@dataclass
class Differences:
    """How timelines differ, in numbers of posts; `readers` are those whose timeline differs."""

    readers: list[str] = field(default_factory=list)
    missing: int = 0
    more: int = 0  # what the reader must not see, and what was shown twice
    otherwise: int = 0  # in another place, or with another text


Timelines = Mapping[str, Sequence[Shown]]  # by their readers


def compare(expected: Timelines, held: Timelines) -> Differences:
    """`held` are whole timelines as they were read, each of which is in `expected`."""
    found = Differences()
    for reader, shown in held.items():
        if list(shown) == list(expected[reader]):
            continue
        wanted, got = (Counter(post[0] for post in some) for some in (expected[reader], shown))
        missing, more = (wanted - got).total(), (got - wanted).total()
        found.readers.append(reader)
        found.missing += missing
        found.more += more
        found.otherwise += not missing and not more
    return found
