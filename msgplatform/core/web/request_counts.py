"""The requests that web servers answered, by route, method and status, with their durations.

Each process counts in memory, which takes about a microsecond per request. A thread adds new counts
to the work Redis, so that any web process knows the sums of all. A killed process loses its last
seconds; a flush of Redis resets the counters, which Prometheus allows.
"""

import itertools
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress

from msgplatform.core.connections import OutOfMemoryError, RedisError, briefly, work_redis
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.flows.metric import Metrics, Sample

# Upper bounds of the buckets, in seconds.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ADD_SECONDS = 5.0
_KEY = "web:requests"
# Fields of the hash: "n <route> <method> <status>", "b <route> <bucket>", "s <route>".
_NUMBER, _BUCKET, _SECONDS = "nbs"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

METRICS = Metrics()
_REQUESTS = METRICS.counter(
    "web_requests",
    "Requests by route (the beginning of an address, or other), method and status; status 499: the "
    "client left before it had sent its body",
    *("route", "method", "status"),
)
_SECONDS_BY_ROUTE = METRICS.histogram(
    "web_request_seconds", "From the head of a request to its answer, by route", "route"
)


# (route, method, status) → number of requests in each bucket, then their seconds; only growing.
_Rows = dict[tuple[str, str, int], list[float]]


class Requests:
    """The requests that one process answered. One thread calls `count`, any thread calls `add`."""

    def __init__(self) -> None:
        self._rows: _Rows = {}
        self._added: _Rows = {}  # the part that Redis has
        self._adding = threading.Lock()

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request. There must be few different routes."""
        key = (route, method if method in _METHODS else "other", status)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = [0] * (len(BOUNDS) + 1) + [0.0]
        row[bisect_left(BOUNDS, seconds)] += 1
        row[-1] += seconds

    @briefly()  # /metrics waits for this lock
    def add(self) -> None:
        """Add the counts since the last call to the sums of all processes. Raises RedisError."""
        with self._adding:
            rows = {key: list(row) for key, row in list(self._rows.items())}
            fields: Counter[str] = Counter()
            seconds: defaultdict[str, float] = defaultdict(float)  # by route
            for key, row in rows.items():
                added_row = self._added.get(key) or itertools.repeat(0)
                *buckets, duration = [new - old for new, old in zip(row, added_row, strict=False)]
                if not any(buckets):
                    continue
                route, method, status = key
                fields[f"{_NUMBER} {route} {method} {status}"] = int(sum(buckets))
                for place, number in enumerate(buckets):
                    if number:
                        fields[f"{_BUCKET} {route} {place}"] += int(number)
                seconds[route] += duration
            if not fields:
                return
            # A full Redis gets the counts later: no work stands still for them.
            with suppress(OutOfMemoryError), work_redis().pipeline() as pipe:
                for field, number in fields.items():
                    pipe.hincrby(_KEY, field, number)
                for route, duration in seconds.items():
                    pipe.hincrbyfloat(_KEY, f"{_SECONDS} {route}", round(duration, 6))
                pipe.execute()
                self._added = rows


ANSWERED = Requests()


def keep_adding() -> None:
    """Add this process's requests every few seconds, in a thread."""
    ThreadLoop("requests", ANSWERED.add, every=ADD_SECONDS).start()


def samples() -> Iterator[Sample]:
    """The samples of all web processes. Counts of other processes may be ADD_SECONDS old."""
    try:
        ANSWERED.add()
        rows: dict[bytes, bytes] = work_redis().hgetall(_KEY)  # type: ignore[assignment]
    except RedisError:
        return
    buckets: dict[str, Counter[int]] = {}
    for field, value in sorted(rows.items()):
        try:
            kind, route, *rest = field.decode().split(" ")
            if kind == _NUMBER:
                yield _REQUESTS.of(int(value), route=route, method=rest[0], status=rest[1])
            elif kind == _BUCKET:
                buckets.setdefault(route, Counter())[int(rest[0])] = int(value)
            else:
                yield _SECONDS_BY_ROUTE.of(float(value), route=route)
        except (ValueError, IndexError):  # a field of another program must not hide ours
            continue
    for route, counts in buckets.items():
        total = 0
        for place, upper_bound in enumerate([*map(str, BOUNDS), "+Inf"]):
            total += counts[place]
            yield _SECONDS_BY_ROUTE.bucket(upper_bound, total, route=route)
