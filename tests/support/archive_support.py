"""Old messages with copies and attempts, and an archive in a database of its own."""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from msgplatform import env
from msgplatform.core.archive import partitions
from msgplatform.core.archive.description import Archive
from msgplatform.core.data import ids, sql
from notify.archive.archiver import Archiver
from notify.models import (
    Attempt,
    BizMsg,
    BizReceive,
    ColdAttempt,
    ColdBizMsg,
    ColdReceiveMsg,
    IdempotencyKey,
    ReceiveMsg,
)
from tests.servers import Servers

Status = ReceiveMsg.Status
_numbers = itertools.count(1)
COLD_MODELS = (ColdBizMsg, ColdReceiveMsg, ColdAttempt)


def old_id(days: float) -> int:
    """An id that was made that many days ago, another one at each call."""
    first = ids.first_id_at(sql.now() - timedelta(days=days))
    return first + (next(_numbers) << ids.TICK_SHIFT)


def message(
    subscription: BizReceive,
    *statuses: int,
    days: float = 10.0,
    event_type: str = "order.paid",
    channel: str = "",
    payload: bytes = b'{"n":1}',
    key: str = "",
    answer: str = "thank you",
) -> int:
    """An old message that is split, with a copy in each status for the subscription and as many
    others as needed, and an attempt each; its id."""
    pk = old_id(days)
    at = ids.datetime_of(pk)
    BizMsg.objects.create(
        id=pk, biz_id=subscription.biz_id, event_type=event_type, channel=channel,
        payload=payload, state=BizMsg.State.DISTRIBUTED, created_at=at,
    )  # fmt: skip
    if key:
        IdempotencyKey.objects.create(
            id=pk, bucket=ids.bucket(subscription.biz_id, key), biz_id=subscription.biz_id,
            key=key, payload_hash="0" * 64, created_at=at,
        )  # fmt: skip
    for place, status in enumerate(statuses):
        copy = _copy(pk, subscription, place, status, at)
        Attempt.objects.create(
            id=old_id(days), copy_id=copy.pk, claim=f"{copy.pk:032d}"[-32:], number=1, at=at,
            seconds=0.1 + 0.2, http_status=200 if status == Status.DELIVERED else 500,
            response_headers="a: b", response_body=answer,
        )  # fmt: skip
    return pk


def _copy(
    msg_id: int, subscription: BizReceive, place: int, status: int, at: datetime
) -> ReceiveMsg:
    return ReceiveMsg.objects.create(
        id=msg_id + ((place + 1) << ids.NODE_SHIFT), msg_id=msg_id, biz_id=subscription.biz_id,
        biz_receive_id=subscription.pk + place * 1000, status=status, send_times=1, next_at=at,
        http_status=200, created_at=at, updated_at=at,
    )  # fmt: skip


def archive(archiver: Archiver | None = None) -> Archiver:
    """Turn until there is nothing to do."""
    archiver = archiver or Archiver()
    while archiver.turn():
        pass
    return archiver


def without_months(archive: Archive) -> None:
    """An archive's partitions as a migration makes them (MariaDB); the rows go too."""
    using = archive.using
    if connections[using].vendor != "mysql":
        return
    with connections[using].cursor() as cursor:
        for table in archive.all_tables():
            cursor.execute(f"TRUNCATE TABLE {table.name}")
            # `partition` leaves a table alone that has months.
            if partitions.partitions_of(table):
                cursor.execute(f"ALTER TABLE {table.name} REMOVE PARTITIONING")
            partitions.partition(
                connections[using], table.name, column=table.column, step=table.step
            )


def hot_ids() -> list[int]:
    return list(BizMsg.objects.order_by("id").values_list("id", flat=True))


def cold_ids() -> list[int]:
    return list(ColdBizMsg.objects.order_by("id").values_list("id", flat=True))


def everything() -> dict[int, tuple[Any, ...]]:
    """Message → all that is known of it, wherever it is; fails when it is in both places whole."""
    found: dict[int, tuple[Any, ...]] = {}
    for place in ((ColdBizMsg, ColdReceiveMsg, ColdAttempt), (BizMsg, ReceiveMsg, Attempt)):
        found |= _of(*place)
    return found


def _of(messages: Any, copies: Any, attempts: Any) -> dict[int, tuple[Any, ...]]:
    shown = ("id", "biz_id", "event_type", "channel", "payload", "created_at")
    found: dict[int, Any] = {}
    for row in messages.objects.order_by("id").values_list(*shown):
        of_message = copies.objects.filter(msg_id=row[0]).order_by("id")
        copy_rows = tuple(of_message.values_list(*_columns(ColdReceiveMsg)))
        of_copies = attempts.objects.filter(copy_id__in=[copy[0] for copy in copy_rows])
        attempt_rows = tuple(of_copies.order_by("id").values_list(*_columns(ColdAttempt)))
        found[row[0]] = (tuple(map(_bytes, row)), copy_rows, attempt_rows)
    return found


def _columns(model: Any) -> Sequence[str]:
    return [field.column for field in model._meta.concrete_fields]


def _bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _allow(alias: str) -> None:
    """Django's test case refuses databases that were not there when it began."""
    wrapper = connections[alias]

    def ensure_connection() -> None:
        if wrapper.connection is None:
            with wrapper.wrap_database_errors:
                wrapper.connect()

    wrapper.ensure_connection = ensure_connection  # type: ignore[method-assign]


@contextmanager
def cold_database(directory: Path, server: MariaDb | None) -> Iterator[str]:
    """The archive in a file or a schema of its own, migrated; gives its URL."""
    url = server.create("archive") if server else f"sqlite:///{directory / 'cold.db'}"
    os.environ["COLD_DATABASE_URL"] = url
    config = env.database("COLD_DATABASE_URL", "")
    connections.databases["cold"] = {**connections.databases["default"], **config}
    _allow("cold")
    try:
        migrated.fill(url, lambda: call_command("migrate", database="cold", verbosity=0), "cold")
        yield url
    finally:
        connections["cold"].close()
        del connections["cold"]
        del connections.databases["cold"]
        del os.environ["COLD_DATABASE_URL"]


@pytest.fixture(params=["the same database", "a database of its own"])
def place(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[str]:
    """Where the archive is."""
    if request.param == "the same database":
        yield "default"
        return
    server = servers.mariadb() if connection.vendor == "mysql" else None
    with cold_database(tmp_path, server):
        yield "cold"
