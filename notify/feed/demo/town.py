"""The town of the demo: its people, and what each of them must see.

    people      ordinary users
    PAGE        a page that everybody may follow
    STAR        a celebrity, whom nearly everybody follows

Standard library only, because it must not share code with the programs that it checks. Nothing here
is quick or clever: a timeline is made by looking at every post, one after the other.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from msgplatform.demo.account import Records

FRIEND, VIP = "friend", "vip"


@dataclass
class Post:
    """A post as it is now. `id` is a string of digits, as the platform gives it."""

    id: str
    uid: str
    topic: str
    data: str
    deleted: bool = False


@dataclass
class Town:
    """Everybody's posts and relations. Several threads may use it."""

    posts: dict[str, Post] = field(default_factory=dict)
    friends: set[tuple[str, str]] = field(default_factory=set)  # both ways round
    follows: set[tuple[str, str]] = field(default_factory=set)  # (author, reader)
    blocks: set[tuple[str, str]] = field(default_factory=set)  # (blocked user, blocking user)
    read: dict[str, int] = field(default_factory=dict)  # the id up to which a reader has read
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, action: str, uid: str, other: str) -> bool:
        """`uid` befriends, follows, blocks … `other`; False when a block forbids it."""
        with self.lock:
            is_blocked = bool({(uid, other), (other, uid)} & self.blocks)
            if action in ("befriend", "follow") and is_blocked:
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

    def timeline(self, reader: str) -> Records:
        """This reader's posts, newest first: id → author, topic, data."""
        with self.lock:
            posts = [
                post
                for post in self.posts.values()
                if not post.deleted and self.is_shown(reader, post.uid, post.topic)
            ]
        posts.sort(key=lambda post: int(post.id), reverse=True)
        return [(post.id, (post.uid, post.topic, post.data)) for post in posts]

    def unread(self, reader: str, timeline: Records) -> int:
        """The number of posts of others in this timeline that its reader has not read."""
        up_to = self.read.get(reader, 0)
        return sum(int(id) > up_to and self.posts[id].uid != reader for id, _ in timeline)

    def is_shown(self, reader: str, author: str, topic: str) -> bool:
        """True if this reader sees this author's posts of this topic."""
        return (
            author == reader
            or (author, reader) in self.friends
            or (topic == VIP and (author, reader) in self.follows)
        )


PAGE, STAR = "town-hall", "film-star"
_FRIENDS_MADE = 26  # by each user, who has about twice as many then
_FOLLOWED = 6
_SEED = 20261122


@dataclass(frozen=True)
class Scenario:
    """`people` are the users. `chance` decides what they do, and is the same in each run."""

    people: list[str]
    chance: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311

    @property
    def readers(self) -> list[str]:
        return [*self.people, PAGE, STAR]

    @property
    def newcomers(self) -> list[str]:
        """People who come for the first time after all traffic."""
        return self.people[7::20]

    @property
    def travellers(self) -> list[str]:
        """People who came once, stay away for long, and come back in the middle of it."""
        return self.people[3::20]

    def relations(self) -> list[tuple[str, str, str]]:
        """(action, uid, other): friendships at random; a third follow the page, nearly all follow
        the star, and everybody follows a few others."""
        changes: dict[tuple[str, str, str], None] = {}
        for uid in self.people:
            for other in self._others(uid, _FRIENDS_MADE):
                if ("befriend", other, uid) not in changes:
                    changes["befriend", uid, other] = None
            for other in self._others(uid, _FOLLOWED):
                changes["follow", uid, other] = None
        for number, uid in enumerate(self.people):
            if number % 3 == 0:
                changes["follow", uid, PAGE] = None
            if number % 20:
                changes["follow", uid, STAR] = None
            if number % 50 == 0:
                changes["befriend", uid, STAR] = None
        return list(changes)

    def _others(self, uid: str, count: int) -> list[str]:
        some = self.chance.sample(self.people, min(count + 1, len(self.people)))
        return [other for other in some if other != uid][:count]


def people(count: int) -> list[str]:
    return [f"citizen-{number:04d}" for number in range(count)]
