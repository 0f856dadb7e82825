"""Erase the values of records from operations, and from the copies of operations in Redis.

    each request of the record ──> key, version and deletion stay; `erased`, and without fields
    record on its way, or due  ──> dismissed; nothing of it is sent until a newer version is read
    record otherwise           ──> as it is; sent again, it is dead with the reason "erased"

The operations of a record are found without an index: its row names the newest, and each request
names the operation before (`Request.previous`). Items and the recovery log name operations too.
Where a request of an earlier release names none, or an operation is gone, the older operations of
the policy are read one by one; so are operations that only Redis has.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import msgspec
from django.db.models import Case, F, Value, When

from crmsync import copies, orders
from crmsync.models import Item, Operation, Policy, Record, RecoveryEntry
from crmsync.models.operations import UNKNOWN
from crmsync.operations import add_endings
from crmsync.orders import Request
from msgplatform.core.data import chunks, claims, ids, sql, transactions
from msgplatform.core.person.identity import Person

_PAGE = 20  # operations read at once: each may hold hundreds of requests


class ErasedRequests(msgspec.Struct):
    """The number of requests that lost their fields, and the operations that held them."""

    requests: int = 0
    operations: set[int] = msgspec.field(default_factory=set)


def erase(record_ids: Collection[int]) -> ErasedRequests:
    """Erase the values of these records from everything that was, or is to be, sent to a CRM, while
    pollers, handlers, replays and the archive go on. It can be repeated, and finds nothing then.

    Erase or delete the source's row first: rows that pollers have read before this are read again.
    Of the record only the state changes; its digests, items, recovery entries and lead are the
    caller's. Orders in the queues, and what a handler has in memory, are gone after
    CRM_LEASE_SECONDS + 60 s; they are not sent, unless a call was being made. Records that do not
    exist are left out: call this before their rows are deleted.

    Raises RedisError, and what an unavailable database raises; then repeat it.
    """
    erased = ErasedRequests()
    records = [
        record for page in chunks(sorted(record_ids), claims.CHUNK) for record in _read(page)
    ]
    by_policy: dict[int, list[Record]] = {}
    for record in records:
        by_policy.setdefault(record.policy_id, []).append(record)
    for policy_id, of_policy in by_policy.items():
        keys = _Keys(policy_id, [record.key for record in of_policy])
        record_ids = [record.pk for record in of_policy]
        _drop_rows_read(policy_id)
        _dismiss(record_ids)
        for operation_id in sorted(_find(record_ids, keys)):
            rewrite = partial(_erase_requests, operation_id, keys=keys, erased=erased)
            _rewrite(policy_id, operation_id, rewrite)
        _dismiss(record_ids)  # a person may have resent a record before its operation was cut
    return erased


def erase_texts(policy_id: int, operation_id: int, person: Person) -> int:
    """Erase only the person's numbers and addresses from the requests of an operation and its copy.
    Returns 1, or 0 if they have none. The requests are sent as before. Raises as `erase`."""
    operation_ids: set[int] = set()

    def rewrite(data: bytes) -> bytes | None:
        requests = orders.load_readable(operation_id, data)
        new = []
        for request in requests:
            fields = person.erased_value(request.fields)
            if fields != request.fields:
                # The digest stays: one that differs from its record's would never be sent.
                digest = orders.digest(request)
                new.append(msgspec.structs.replace(request, fields=fields, row_digest=digest))
            else:
                new.append(request)
        if new == requests:
            return None
        operation_ids.add(operation_id)
        return orders.dump(new)

    _rewrite(policy_id, operation_id, rewrite)
    return len(operation_ids)


class _Keys:
    """The keys of records as requests of their policy have them."""

    def __init__(self, policy_id: int, keys: Sequence[str]) -> None:
        self.policy_id = policy_id
        prefix = Policy.objects.filter(pk=policy_id).values_list("key_prefix", flat=True).first()
        self._exact = None if prefix is None else {prefix + key for key in keys}
        self._endings = tuple(keys)

    def __contains__(self, key: str) -> bool:
        # The prefix of a deleted policy is not known. Nothing of it is sent any more, so that it
        # does no harm to erase too much.
        return key.endswith(self._endings) if self._exact is None else key in self._exact


def _read(record_ids: Iterable[int]) -> list[Record]:
    columns = ("id", "policy_id", "key", "operation_id", "sending_operation")
    return list(Record.objects.filter(id__in=list(record_ids)).only(*columns).order_by("id"))


@transactions.repeatable
def _drop_rows_read(policy_id: int) -> None:
    """Let the policy's poller read its source anew. A poller that stores rows read before this
    finds that it no longer holds the policy."""
    rows = Policy.objects.select_for_update().filter(pk=policy_id)
    if rows.exists():
        rows.update(claimed_by="", lease_until=None)


def _dismiss(record_ids: Sequence[int]) -> None:
    """Dismiss records that are in flight or due, in the present version."""

    @transactions.repeatable
    def dismiss_page(page: Sequence[int]) -> None:
        rows = Record.objects.select_for_update().filter(id__in=page).order_by("id")
        records = [record for record in rows if record.state in Record.OPEN]
        if not records:
            return
        # The CRM may hold the record that was in flight: look it up before sending a newer version.
        unknown = When(state=Record.State.QUEUED, then=Value(UNKNOWN))
        now = sql.now()
        claims.update_by_key(
            Record.objects.filter(id__in=[record.pk for record in records]),
            {
                "error_class": Case(unknown, default=F("error_class")),
                "state": Record.State.DISMISSED, "next_at": None, "claimed_by": "",
                "sending_operation": 0, "updated_at": now,
            },
        )  # fmt: skip
        counts = Counter(
            (operation_id, "replaced")
            for record in records
            for operation_id in {record.operation_id, record.sending_operation} - {0}
        )
        add_endings(counts, now)

    for page in chunks(record_ids, claims.CHUNK):
        dismiss_page(page)


# -- which operations ----------------------------------------------------------------------------
def _find(record_ids: Sequence[int], keys: _Keys) -> set[int]:
    """The operations that may hold requests of these records."""
    unread: set[int] = set()
    for page_of_ids in chunks(record_ids, claims.CHUNK):
        for record in _read(page_of_ids):  # the record may have a newer operation by now
            unread |= {record.operation_id, record.sending_operation}
        items = Item.objects.filter(record_id__in=page_of_ids).order_by()
        unread.update(items.values_list("operation_id", flat=True).distinct())
        entries = RecoveryEntry.objects.filter(record_id__in=page_of_ids).order_by()
        unread.update(entries.values_list("operation_id", flat=True).distinct())
    operation_ids: set[int] = set()
    unknown_before = 0  # an operation whose predecessors are not known
    while unread := unread - operation_ids - {0}:
        operation_ids |= unread
        following: set[int] = set()
        for page_of_ids in chunks(sorted(unread), _PAGE):
            rows = Operation.objects.filter(id__in=page_of_ids).values_list("id", "data")
            data = {pk: bytes(content) for pk, content in rows}
            only_in_redis = copies.read([pk for pk in page_of_ids if pk not in data])
            data |= {pk: copy.data for pk, copy in only_in_redis.items()}
            unknown_before = max([unknown_before, *(pk for pk in page_of_ids if pk not in data)])
            for pk, content in data.items():
                requests = orders.load_readable(pk, content)
                previous = {request.previous for request in requests if request.key in keys}
                following |= {operation_id for operation_id in previous if operation_id}
                if None in previous:
                    unknown_before = max(unknown_before, pk)
        unread = following
    if unknown_before:
        first_read = ids.datetime_of(min(record_ids)) - copies.EARLIER
        operation_ids.update(_older(keys, int(first_read.timestamp() * 1000), unknown_before))
    # Operations that a database restored from a backup does not have.
    for page in copies.since(0):
        rows_of_page = Operation.objects.filter(id__in=page).order_by()
        stored_ids = set(rows_of_page.values_list("id", flat=True))
        for redis_ids in chunks([pk for pk in page if pk not in stored_ids], _PAGE):
            for copy in copies.read(redis_ids).values():
                if any(request.key in keys for request in orders.load_readable(copy.id, copy.data)):
                    operation_ids.add(copy.id)
    return operation_ids


def _older(keys: _Keys, since_ms: int, before: int) -> Iterator[int]:
    """The policy's operations since `since_ms` that are older than the operation `before`."""
    rows = Operation.objects.filter(policy_id=keys.policy_id, id__lt=before).order_by("-id")
    while page := list(rows.values_list("id", "start_at", "data")[:_PAGE]):
        for pk, _start_at, data in page:
            if any(request.key in keys for request in orders.load_readable(pk, bytes(data))):
                yield pk
        if page[-1][1] < since_ms:
            return
        rows = rows.filter(id__lt=page[-1][0])


# -- their content -------------------------------------------------------------------------------
@transactions.repeatable
def _rewrite(policy_id: int, operation_id: int, rewrite: Callable[[bytes], bytes | None]) -> None:
    """Change the data of an operation and its copy. `rewrite` returns None for no change."""
    # A replay takes the same lock before it makes the operation anew from its copy.
    list(Policy.objects.select_for_update().filter(pk=policy_id).values_list("pk"))
    rows = Operation.objects.select_for_update().filter(pk=operation_id)
    row, data = rows.first(), None
    if row:
        data = rewrite(bytes(row.data))
        if data is not None:
            rows.update(data=data)
    if copy := copies.read([operation_id]).get(operation_id):
        content = rewrite(copy.data)
        if content is not None:
            copies.overwrite(copy, content)
    elif row and data is not None:
        # Write the copy: a poller that was stopped before writing it must not write it now.
        copies.overwrite(row, data)


def _erase_requests(
    operation_id: int, data: bytes, *, keys: _Keys, erased: ErasedRequests
) -> bytes | None:
    """The data without the fields of these requests; None if the data has no such request."""
    requests = orders.load_readable(operation_id, data)
    # Keep a deletion, which has no fields: it may be sent again until the CRM has confirmed it.
    own_requests = [
        request
        for request in requests
        if request.key in keys and not (request.erased or request.deleted)
    ]
    if not own_requests:
        return None
    if operation_id not in erased.operations:
        erased.requests += len(own_requests)
        erased.operations.add(operation_id)
    return orders.dump(
        [
            Request(
                request.key, request.version, {}, request.deleted, request.previous, erased=True
            )
            if request.key in keys and not request.deleted
            else request
            for request in requests
        ]
    )
