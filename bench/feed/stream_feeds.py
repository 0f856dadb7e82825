"""What the Redis of the reference stream-framework must hold after its fan-out."""

from collections.abc import Iterator
from datetime import UTC

from bench.harness.processes import BenchFailed
from bench.references.stream_framework import fan_out
from msgplatform.core.connections import work_redis

_PAGE = 1_000
_BEGIN = int(fan_out.BEGIN.replace(tzinfo=UTC).timestamp())
_ADD = 4  # the library's number of the verb Add
_FEEDS, _ACTIVITIES = "feed_*", "global:*"


def check_written(posts: int, users: int, friends: int) -> int:
    """Check that each friend of the author of each of the first `posts` posts has its entry, that
    there is no other entry, and that each post is stored; how many entries there are. Raises
    BenchFailed."""
    missing = {
        (friend, activity_id(number))
        for number in range(posts)
        for friend in fan_out.friends(fan_out.author(number, users), users, friends)
    }
    expected = len(missing)
    for entry in _entries():
        if entry not in missing:
            raise BenchFailed(f"the entry {entry} is there twice, or for nobody's friend")
        missing.remove(entry)
    if missing:
        raise BenchFailed(f"{len(missing)} of {expected} entries are missing")
    stored = sum(work_redis().hlen(key) for key in work_redis().scan_iter(_ACTIVITIES))
    if stored != posts:
        raise BenchFailed(f"{stored} activities are stored instead of {posts}")
    return expected


def activity_id(number: int) -> int:
    """The library's id: milliseconds, ten digits of the post, three of the verb."""
    return int(f"{(_BEGIN + number) * 1000}{number:010d}{_ADD:03d}")


def _entries() -> Iterator[tuple[int, int]]:
    """Each entry, as the follower and the activity's id."""
    client = work_redis()
    keys = list(client.scan_iter(_FEEDS, count=_PAGE))
    for start in range(0, len(keys), _PAGE):
        page = keys[start : start + _PAGE]
        with client.pipeline(transaction=False) as pipe:
            for key in page:
                pipe.zrange(key, 0, -1)
            for key, members in zip(page, pipe.execute(), strict=True):
                user = int(key.decode().partition("_")[2])
                yield from ((user, int(member)) for member in members)
