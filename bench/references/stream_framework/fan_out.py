"""Fan-out with stream-framework's RedisFeed: an entry in the feed of each friend of each author.

    python -m bench.references.stream_framework.fan_out --redis SOCKET --users 100000 …

Its `Manager` cannot be imported by Python 3.7 and later (`async` is a parameter there), so the
program does what a worker of its Manager does: for each follower, `add` with the batch interface.
What makes it fast: the activities of a batch are grouped by follower, so that a feed is written
once (`add_many`) for all of them; feeds are not trimmed, as ours are not; friends come from memory
and no task goes through Celery. The activities themselves are stored before, outside of what is
measured, as the posts are in ours.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from bench.harness.programs import worker

# Post n was made n seconds after this moment; its activity's id begins with that time.
BEGIN = datetime(2026, 1, 1)  # noqa: DTZ001 - the library's times have no zone
# The author of post n is user n * SPREAD, as in bench/feed/posts.py.
SPREAD = 7919


def main() -> None:
    parser = worker.options("Fan out with stream-framework.")
    parser.add_argument("--redis", required=True)
    for name in ("batch", "users", "friends"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    use_redis(options.redis)
    from stream_framework.activity import Activity
    from stream_framework.feeds.redis import RedisFeed
    from stream_framework.verbs.base import Add

    start = 0
    while not stop:
        with options.progress.idle():
            activities = [
                Activity(
                    author(number, options.users), Add, number,
                    time=BEGIN + timedelta(seconds=number),
                    extra_context={"app_id": "web", "src_type": "note"},
                )
                for number in range(start, start + options.batch)
            ]  # fmt: skip
            RedisFeed.insert_activities(activities)
        grouped = defaultdict(list)
        for activity in activities:
            for friend in friends(activity.actor_id, options.users, options.friends):
                grouped[friend].append(activity)
        with RedisFeed.get_timeline_batch_interface() as batch:
            for friend, some in grouped.items():
                RedisFeed(friend).add_many(some, batch_interface=batch, trim=False)
                options.progress.add(len(some))
        start += options.batch


def use_redis(socket: str) -> None:
    """Let the library use a Redis on a Unix socket; its settings know only host and port."""
    import redis
    from stream_framework.storage.redis import connection

    pool = redis.ConnectionPool(
        connection_class=redis.UnixDomainSocketConnection, path=socket, decode_responses=True
    )
    connection.connection_pool = {"default": pool}


def author(number: int, users: int) -> int:
    return number * SPREAD % users


def friends(user: int, users: int, count: int) -> Iterator[int]:
    """The same friends as in bench/feed/people.py."""
    step = users // (count + 1)
    for k in range(1, count // 2 + 1):
        yield (user + k * step) % users
        yield (user - k * step) % users


if __name__ == "__main__":
    main()
