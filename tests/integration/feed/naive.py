"""What timelines must show, kept in plain lists by a generator of random work."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Made:
    """A post that was stored."""

    id: int
    uid: str
    topic: str
    app_id: str
    data: str
    deleted: bool = False


@dataclass(slots=True)
class World:
    """`follows` and `blocks` are pairs (who does it, to whom)."""

    posts: list[Made] = field(default_factory=list)
    friends: set[frozenset[str]] = field(default_factory=set)
    follows: set[tuple[str, str]] = field(default_factory=set)
    blocks: set[tuple[str, str]] = field(default_factory=set)
    read: dict[str, int] = field(default_factory=dict)

    def change(self, uid: str, action: str, other: str) -> None:
        pair = frozenset((uid, other))
        blocked = {(uid, other), (other, uid)} & self.blocks
        match action:
            case "befriend" if not blocked:
                self.friends.add(pair)
            case "follow" if not blocked:
                self.follows.add((uid, other))
            case "unfriend":
                self.friends.discard(pair)
            case "unfollow":
                self.follows.discard((uid, other))
            case "block":
                self.blocks.add((uid, other))
                self.friends.discard(pair)
                self.follows -= {(uid, other), (other, uid)}
            case "unblock":
                self.blocks.discard((uid, other))

    def sees(self, uid: str, post: Made) -> bool:
        if post.deleted:
            return False
        if post.uid == uid or frozenset((uid, post.uid)) in self.friends:
            return True
        return post.topic == "vip" and (uid, post.uid) in self.follows

    def timeline(self, uid: str, app_id: str = "") -> list[Made]:
        """Newest first."""
        seen = [p for p in self.posts if self.sees(uid, p) and app_id in ("", p.app_id)]
        return sorted(seen, key=lambda post: -post.id)

    def unread(self, uid: str) -> int:
        mark = self.read.get(uid, 0)
        return sum(post.id > mark and post.uid != uid for post in self.timeline(uid))

    def mark_read(self, uid: str, up_to: int) -> None:
        self.read[uid] = max(self.read.get(uid, 0), up_to)
