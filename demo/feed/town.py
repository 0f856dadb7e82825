"""The town of the demo: its users, and the timeline that each of them must see.

    citizens    ordinary users
    PAGE        a page that a third of the citizens follow
    STAR        a celebrity whom nearly all citizens follow

The demo compares the platform's timelines with these. That is why this module shares no code with
the programs that it checks, and looks at every post for each timeline.
"""

import random
import threading
from dataclasses import dataclass, field

from demo.account import Records

FRIEND, VIP = "friend", "vip"


@dataclass
class Post:
    """The present state of a post. `id` is a string of digits, as in the API."""

    id: str
    uid: str
    topic: str
    data: str
    deleted: bool = False


@dataclass
class Town:
    """Everybody's posts and relations. Several threads may use it."""

    posts: dict[str, Post] = field(default_factory=dict)
    friends: set[tuple[str, str]] = field(default_factory=set)  # each friendship in both orders
    follows: set[tuple[str, str]] = field(default_factory=set)  # (author, reader)
    blocks: set[tuple[str, str]] = field(default_factory=set)  # (blocked user, blocking user)
    read: dict[str, int] = field(default_factory=dict)  # reader → id of the last post that was read
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, action: str, uid: str, other: str) -> bool:
        """Store that `uid` befriends, follows, blocks … `other`. Returns False when a block forbids
        it."""
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
            elif action == "unfriend":
                self.friends -= {(uid, other), (other, uid)}
            else:  # block
                self.friends -= {(uid, other), (other, uid)}
                self.follows -= {(uid, other), (other, uid)}
                self.blocks.add((other, uid))
            return True

    def add(self, post: Post) -> None:
        with self.lock:
            self.posts[post.id] = post

    def timeline(self, reader: str) -> Records:
        """The posts that this reader sees, newest first: (id, (author, topic, data))."""
        with self.lock:
            posts = [
                post
                for post in self.posts.values()
                if not post.deleted and self.is_shown(reader, post.uid, post.topic)
            ]
        posts.sort(key=lambda post: int(post.id), reverse=True)
        return [(post.id, (post.uid, post.topic, post.data)) for post in posts]

    def unread(self, reader: str, timeline: Records) -> int:
        """The number of posts in this timeline that others wrote and the reader has not read."""
        last_read_id = self.read.get(reader, 0)
        return sum(int(id) > last_read_id and self.posts[id].uid != reader for id, _ in timeline)

    def is_shown(self, reader: str, author: str, topic: str) -> bool:
        """True if this reader sees this author's posts of this topic."""
        return (
            author == reader
            or (author, reader) in self.friends
            or (topic == VIP and (author, reader) in self.follows)
        )


PAGE, STAR = "town-hall", "film-star"
_FRIENDS_PER_USER = 26  # that the user asks; about as many others ask the user
_FOLLOWS_PER_USER = 6
_SEED = 20261122


@dataclass(frozen=True)
class Population:
    """The citizens, and the random numbers (equal in each run) that decide their actions."""

    people: list[str]
    chance: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311

    @property
    def readers(self) -> list[str]:
        return [*self.people, PAGE, STAR]

    @property
    def newcomers(self) -> list[str]:
        """Citizens who open their timeline for the first time after all posts were sent."""
        return self.people[7::20]

    @property
    def travellers(self) -> list[str]:
        """Citizens who have visited once, are away for long, and return while posts are sent."""
        return self.people[3::20]

    def relations(self) -> list[tuple[str, str, str]]:
        """The actions (action, uid, other) that make the town, each once and in order: random
        friendships and follows, then the followers of the page and the star."""
        changes: dict[tuple[str, str, str], None] = {}
        for uid in self.people:
            for other in self._choose_others(uid, _FRIENDS_PER_USER):
                if ("befriend", other, uid) not in changes:
                    changes["befriend", uid, other] = None
            for other in self._choose_others(uid, _FOLLOWS_PER_USER):
                changes["follow", uid, other] = None
        for number, uid in enumerate(self.people):
            if number % 3 == 0:
                changes["follow", uid, PAGE] = None
            if number % 20:
                changes["follow", uid, STAR] = None
            if number % 50 == 0:
                changes["befriend", uid, STAR] = None
        return list(changes)

    def _choose_others(self, uid: str, count: int) -> list[str]:
        # One more than `count`, because `uid` may be among them.
        sample = self.chance.sample(self.people, min(count + 1, len(self.people)))
        return [other for other in sample if other != uid][:count]


def citizens(count: int) -> list[str]:
    """Ids of so many users."""
    return [f"citizen-{number:04d}" for number in range(count)]
