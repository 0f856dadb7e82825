"""CRMs, policies, records in flight and their orders, made directly; and a handler that runs."""

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.db import connection

from crmsync import orders
from crmsync.handler.handler import DataHandler
from crmsync.models import Crm, Operation, Policy, Record, Source
from crmsync.orders import Entry, MainQueue, Order, Queue, Request
from msgplatform.core.data import ids, sql
from tests.support.http_sinks import Sink
from tests.support.json_stub import Answer, Asked
from tests.waiting import pause

T = TypeVar("T")

DEADLINE = 180.0
TABLE = "CREATE TABLE customer (id VARCHAR(40) PRIMARY KEY, name VARCHAR(20), version BIGINT)"


def crm(name: str = "sales", adapter: str = "sql", **fields: Any) -> Crm:
    """`settings` and `credentials` are the adapter's."""
    return Crm.objects.create(name=name, adapter=adapter, **fields)


class Customers:
    """A CRM's own table in a SQLite file, for the SQL adapter."""

    def __init__(self, folder: Path, name: str = "customers.db") -> None:
        self._path = folder / name
        self.run(TABLE)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection:
            rows = connection.execute(statement).fetchall()
            connection.commit()
            return rows

    def rows(self) -> dict[str, tuple[str, int]]:
        """Name and version by key."""
        return {key: (n, v) for key, n, v in self.run("SELECT id, name, version FROM customer")}

    def crm(self, name: str = "sales", **fields: Any) -> Crm:
        credentials = {"url": f"sqlite:///{self._path}"}
        return crm(name, settings={"table": "customer"}, credentials=credentials, **fields)


def policy(crm: Crm, source: str = "leads", **fields: Any) -> Policy:
    found, _ = Source.objects.get_or_create(
        name=source,
        defaults={
            "table": "lead", "time_column": "UpdateTime", "version_column": "version",
            "value_columns": ["name"],
        },
    )  # fmt: skip
    return Policy.objects.create(source=found, crm=crm, mapping="name = name", **fields)


def hive(name: str = "sales", **fields: Any) -> Policy:
    """Leads for a new CRM of this name, which nobody can speak to."""
    return policy(crm(name), "hive", **fields)


@dataclass
class Queued:
    """Records in flight in one order."""

    policy: Policy
    operation: Operation
    order: Order

    def records(self) -> list[Record]:
        return list(Record.objects.filter(policy_id=self.policy.pk).order_by("key"))

    def record(self, key: str) -> Record:
        return Record.objects.get(policy_id=self.policy.pk, key=key)

    def states(self) -> dict[str, Record.State]:
        return {record.key: Record.State(record.state) for record in self.records()}

    def counts(self) -> tuple[int, int, int, int | None]:
        """Confirmed, replaced, dead, and the result."""
        now = Operation.objects.get(pk=self.operation.pk)
        assert (now.end_at is None) is (now.result is None)
        return now.confirmed, now.replaced, now.dead, now.result


def requests(
    keys: Iterable[str], version: int = 1, values: Mapping[str, Any] | None = None
) -> list[Request]:
    return [Request(key, version, {"name": f"name {key}", **(values or {})}) for key in keys]


def new_operation(policy: Policy, made: Sequence[Request], **fields: Any) -> Operation:
    fields = {"records": len(made), "start_at": int(time.time() * 1000), **fields}
    return Operation.objects.create(
        id=ids.new(0), data=orders.dump(made), policy_id=policy.pk, **fields
    )


def on_its_way(
    policy: Policy, made: Sequence[Request], *, lease: float = 120, check: bool = False
) -> Queued:
    """New records that carry a claim, in an order that is in no queue yet."""
    operation, claim, now = new_operation(policy, made), uuid.uuid4().hex, sql.now()
    until = now + timedelta(seconds=lease)
    row_ids = ids.reserve(len(made)).ids([0] * len(made))
    Record.objects.bulk_create(
        Record(
            id=row_id, policy_id=policy.pk, key=request.key, version=request.version,
            deleted=request.deleted, operation_id=operation.pk, sending_operation=operation.pk,
            digest=orders.digest(request), state=Record.State.QUEUED, next_at=until,
            claimed_by=claim, updated_at=now,
        )
        for row_id, request in zip(row_ids, made, strict=True)
    )  # fmt: skip
    entries = [
        Entry(row_id, operation.pk, request, check=check)
        for row_id, request in zip(row_ids, made, strict=True)
    ]
    order = Order(policy.pk, policy.crm_id, claim, until.timestamp(), entries)
    return Queued(policy, operation, order)


def queued(
    policy: Policy, made: Sequence[Request], kind: type[Queue] = MainQueue, **options: Any
) -> Queued:
    """As `on_its_way`, and in the CRM's queue."""
    found = on_its_way(policy, made, **options)
    kind(policy.crm.name).put([found.order])
    return found


def again(queued: Queued, kind: type[Queue] = MainQueue) -> Order:
    """Queue the policy's open records once more, as the poller does when they are due."""
    claim, now = uuid.uuid4().hex, sql.now()
    until = now + timedelta(seconds=120)
    rows = Record.objects.filter(policy_id=queued.policy.pk, state__in=Record.OPEN).order_by("id")
    entries = []
    for row in rows:
        data = Operation.objects.get(pk=row.operation_id).data
        request = next(r for r in orders.load(bytes(data)) if r.key == row.key)
        check = row.error_class == "unknown" or row.state == Record.State.QUEUED
        entries.append(Entry(row.pk, row.operation_id, request, row.remote_id, row.attempt, check))
        Record.objects.filter(pk=row.pk).update(
            state=Record.State.QUEUED, claimed_by=claim, next_at=until,
            sending_operation=row.operation_id,
        )  # fmt: skip
    order = Order(queued.policy.pk, queued.policy.crm_id, claim, until.timestamp(), entries)
    kind(queued.policy.crm.name).put([order])
    return order


def newer(queued: Queued, keys: Iterable[str], version: int = 2) -> Operation:
    """A newer version of these records was read while they are in flight."""
    made = requests(keys, version, {"name": "newer"})
    operation = new_operation(queued.policy, made)
    for request in made:
        Record.objects.filter(policy_id=queued.policy.pk, key=request.key).update(
            version=version, operation_id=operation.pk, digest=orders.digest(request)
        )
    return operation


def deleted(queued: Queued, key: str) -> None:
    """It was read that this record is deleted; `again` queues it."""
    request = Request(key, 2, {}, deleted=True)
    Record.objects.filter(policy_id=queued.policy.pk, key=key).update(
        version=2, deleted=True, operation_id=new_operation(queued.policy, [request]).pk,
        digest=orders.digest(request), state=Record.State.WAITING,
    )  # fmt: skip


def aside(work: Callable[[], T]) -> T:
    """`work()` in a thread of its own: the event loop of a sink may not use the database."""

    def once() -> T:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(once).result()


@contextlib.contextmanager
def running(**options: Any) -> Iterator[DataHandler]:
    """A handler; `turn_until` lets it work."""
    handler = DataHandler(**options)
    handler.start()
    try:
        yield handler
    finally:
        handler.drain(time.monotonic() + 10)
        handler.stop()


def turn_until(
    handler: DataHandler, condition: Callable[[], Any], seconds: float = DEADLINE
) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + seconds, "it did not come"
        handler.stopping.wake()  # it would wait up to a second for a signal, which nobody sends
        handler.turn()
        pause(begun, 0.01)


def turn_after(handler: DataHandler, poll_wait: float) -> None:
    """A turn of a handler after one of a poll, whose next turn is due in `poll_wait` seconds: the
    handler, which waits for work, holds up no poll that goes on at once."""
    if not poll_wait:
        handler.stopping.wake()
    handler.turn()


def handled(*all_queued: Queued, **options: Any) -> None:
    """Let a handler work until none of these carries its order's claim any more."""
    claims = [each.order.claim for each in all_queued]
    with running(**options) as handler:
        turn_until(handler, lambda: not Record.objects.filter(claimed_by__in=claims).exists())


# -- a CRM that speaks HTTP ----------------------------------------------------------------------
class Store:
    """Leads by key, made by POST /leads and changed by PATCH /leads/<remote id>; the remote id is
    `r-<key>`. `says` holds what is answered instead, by key, the first one first; an Answer with
    `.stores` set is given after the lead was stored all the same."""

    def __init__(self, is_upsert: bool = False) -> None:
        self.is_upsert = is_upsert
        self.leads: dict[str, Any] = {}
        self.says: dict[str, list[Answer]] = {}
        self.always: Answer | None = None
        self.token = "hush"
        self.changed: list[str] = []  # keys, at each call that stores
        self.deleted: list[str] = []  # remote ids
        self.calls = 0

    def __call__(self, request: Asked) -> Answer:
        self.calls += 1
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return Answer({"message": "who are you"}, 401)
        last = request.path.rsplit("/", 1)[-1]
        if request.method == "GET":
            found = self.leads.get(last)
            return Answer({"lead": found, "rid": f"r-{last}"}) if found else Answer({}, 404)
        if request.method == "DELETE":
            self.deleted.append(last)
            return Answer(status=204)
        rows = request.body if isinstance(request.body, list) else [request.body]
        for row in rows:
            if self.says.get(row["id"]):
                made = self.says[row["id"]].pop(0)
                if getattr(made, "stores", False):
                    self._store(row)
                return made
        if self.always:
            return self.always
        if request.method == "POST" and not self.is_upsert and rows[0]["id"] in self.leads:
            return Answer({"message": "there is one"}, 409)
        for row in rows:
            self._store(row)
        return Answer({"rid": last if request.method == "PATCH" else f"r-{rows[0]['id']}"})

    def _store(self, row: dict[str, Any]) -> None:
        self.leads[row["id"]] = row
        self.changed.append(row["id"])


def stored(made: Answer) -> Answer:
    """An answer that is given although the lead is stored."""
    made.stores = True  # type: ignore[attr-defined]
    return made


def http_crm(server: Sink, store: Store, name: str = "web", **fields: Any) -> Crm:
    """`settings` in `fields` are added to those that fit the store."""
    leads = server.url("/leads")
    body = {"id": "{key}", "name": "{field.name}", "v": "{version}"}
    made = {
        "url": leads,
        "body": body,
        "is_upsert": store.is_upsert,
        "headers": {"Authorization": "Bearer {secret.token}"},
        "update": {"method": "PATCH", "url": f"{leads}/{{remote_id}}", "body": body},
        "read": {
            "url": f"{leads}/{{key}}",
            "record": "lead",
            "remote_id": "rid",
            "version": "lead.v",
        },
        "answer": {
            "remote_id": "rid",
            "existing_id": "rid",
            "field": "field",
            "message": "message",
        },
        **fields.pop("settings", {}),
    }
    return crm(name, "http", settings=made, credentials={"token": "hush"}, **fields)


BATCHES = {
    "records_per_call": 100,
    "body": "{records}",
    "record": {"id": "{key}", "name": "{field.name}", "v": "{version}"},
    "update": None,
}
