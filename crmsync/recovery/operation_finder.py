"""Find the operations to replay: those in the database, then those that only Redis has."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from crmsync import copies, orders
from crmsync.models import Operation
from crmsync.orders import Request
from msgplatform.core.connections import RedisError
from msgplatform.core.data import chunks, ids

# Operations read at once: each may hold hundreds of requests.
PAGE = 20


class KnownOperation(msgspec.Struct, frozen=True):
    """An operation. `is_stored`: the database has it, not only Redis. `start_at` is milliseconds
    since 1970."""

    id: int
    policy_id: int
    requests: Sequence[Request]
    start_at: int
    is_stored: bool


class OperationFinder:
    """Reads page by page. `missing`: requested ids that neither store has. `problem`: the reason
    why Redis could not be read, '' if it could."""

    def __init__(self, policy_id: int | None = None) -> None:
        self._policy = policy_id
        self._of_policy = {} if policy_id is None else {"policy_id": policy_id}
        self.missing: list[int] = []
        self.problem = ""

    def since(self, moment: datetime) -> Iterator[KnownOperation]:
        """Operations that began at `moment` (aware) or later, oldest first; in the database, then
        in Redis."""
        start = round(moment.timestamp() * 1000)
        after = ids.first_id_at(moment - copies.EARLIER) - 1
        while True:
            rows = Operation.objects.filter(id__gt=after, **self._of_policy)
            page = list(rows.order_by("id").only("id", "policy_id", "data", "start_at")[:PAGE])
            yield from (self._from_row(row) for row in page if row.start_at >= start)
            if len(page) < PAGE:
                break
            after = page[-1].pk
        try:
            for page_ids in copies.since(start):
                operations = self._only_in_redis(page_ids)
                yield from (copy for copy in operations if copy.start_at >= start)
        except RedisError as error:
            self.problem = str(error)[:200]

    def by_ids(self, operation_ids: Sequence[int]) -> Iterator[KnownOperation]:
        """The operations with these ids, oldest first; in the database, then in Redis."""
        sorted_ids = sorted(set(operation_ids))
        seen_ids = set()
        for page in chunks(sorted_ids, PAGE):
            for row in Operation.objects.filter(id__in=page, **self._of_policy).order_by("id"):
                seen_ids.add(row.pk)
                yield self._from_row(row)
        redis_ids = [id for id in sorted_ids if id not in seen_ids]
        try:
            for operation in self._only_in_redis(redis_ids):
                seen_ids.add(operation.id)
                yield operation
        except RedisError as error:
            self.problem = str(error)[:200]
        self.missing = [id for id in redis_ids if id not in seen_ids]

    def _only_in_redis(self, operation_ids: Sequence[int]) -> Iterator[KnownOperation]:
        for page in chunks(operation_ids, PAGE):
            stored_ids = set(Operation.objects.filter(id__in=page).values_list("id", flat=True))
            copies_by_id = copies.read([id for id in page if id not in stored_ids])
            for copy in sorted(copies_by_id.values(), key=lambda copy: copy.id):
                if self._policy in (None, copy.policy_id):
                    requests = orders.load_readable(copy.id, copy.data)
                    yield KnownOperation(copy.id, copy.policy_id, requests, copy.start_at, False)

    def _from_row(self, row: Operation) -> KnownOperation:
        requests = orders.load_readable(row.pk, bytes(row.data))
        return KnownOperation(row.pk, row.policy_id, requests, row.start_at, True)
