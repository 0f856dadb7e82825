"""Operations to be replayed: those in the database, then those that only Redis has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from crmsync import orders
from crmsync.models import Operation
from crmsync.operations import cache
from crmsync.orders import Request
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.data import ids
from msgplatform.core.data.chunks import chunks

log = logging.get(__name__)

# Operations read at once: each may hold hundreds of requests.
PAGE = 20
# An operation's id is older than its `start_at`, and made by another clock.
_EARLIER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Found:
    """An operation. `is_stored`: the database has it, not only Redis. `start_at` is milliseconds
    since 1970."""

    id: int
    policy_id: int
    requests: Sequence[Request]
    start_at: int
    is_stored: bool


class Finder:
    """Reads page by page. `missing` are the ids that were asked for and not found anywhere;
    `problem` says why Redis could not be read, '' when it could."""

    def __init__(self, policy_id: int | None = None) -> None:
        self._policy = policy_id
        self._of_policy = {} if policy_id is None else {"policy_id": policy_id}
        self.missing: list[int] = []
        self.problem = ""

    def since(self, moment: datetime) -> Iterator[Found]:
        """Operations that began at `moment` (aware) or later, oldest first; in the database, then
        in Redis."""
        start = round(moment.timestamp() * 1000)
        after = ids.first_id_at(moment - _EARLIER) - 1
        while True:
            rows = Operation.objects.filter(id__gt=after, **self._of_policy)
            page = list(rows.order_by("id").only("id", "policy_id", "data", "start_at")[:PAGE])
            yield from (self._stored(row) for row in page if row.start_at >= start)
            if len(page) < PAGE:
                break
            after = page[-1].pk
        try:
            for some in cache.since(start):
                yield from self._only_in_redis(some)
        except RedisError as error:
            self.problem = str(error)[:200]

    def these(self, operation_ids: Sequence[int]) -> Iterator[Found]:
        """These operations, oldest first."""
        wanted = sorted(set(operation_ids))
        seen = set()
        for some in chunks(wanted, PAGE):
            for row in Operation.objects.filter(id__in=some, **self._of_policy).order_by("id"):
                seen.add(row.pk)
                yield self._stored(row)
        left = [each for each in wanted if each not in seen]
        try:
            for found in self._only_in_redis(left):
                seen.add(found.id)
                yield found
        except RedisError as error:
            self.problem = str(error)[:200]
        self.missing = [each for each in left if each not in seen]

    def _only_in_redis(self, operation_ids: Sequence[int]) -> Iterator[Found]:
        for some in chunks(operation_ids, PAGE):
            stored = set(Operation.objects.filter(id__in=some).values_list("id", flat=True))
            copies = cache.read([each for each in some if each not in stored])
            for copy in sorted(copies.values(), key=lambda copy: copy.id):
                if self._policy in (None, copy.policy_id):
                    requests = _requests(copy.id, copy.data)
                    yield Found(copy.id, copy.policy_id, requests, copy.start_at, False)

    def _stored(self, row: Operation) -> Found:
        requests = _requests(row.pk, bytes(row.data))
        return Found(row.pk, row.policy_id, requests, row.start_at, True)


def _requests(operation_id: int, data: bytes) -> list[Request]:
    try:
        return orders.load(data)
    except msgspec.DecodeError:
        log.error("operation_unreadable", operation=operation_id)
        return []
