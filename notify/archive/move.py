"""Move a chunk of messages: copy by id, verify, delete.

The hot rows are locked from the first look until they are gone, so nothing can change in between:
a requeue, a re-split or another archiver waits, and then finds the message as it is or nowhere.
In one database all of it is one transaction. An archive elsewhere commits first; a process that
dies in between leaves the message in both, the hot one counts, and the next look replaces what it
finds in the archive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connections, models, transaction
from django.db.models import QuerySet

from msgplatform.core.archive.router import cold_alias
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.errors import Temporary
from msgplatform.core.failpoints import failpoint
from notify.archive.due import Due
from notify.models import (
    Attempt,
    BizMsg,
    ColdAttempt,
    ColdBizMsg,
    ColdReceiveMsg,
    IdempotencyKey,
    ReceiveMsg,
)

HOT = "default"
_CHUNK = 500
_ADDED = ("key", "archived_at")  # what the archive has and the hot table has not
# A copy's id can be a little smaller than its message's: another machine's clock made it.
_CLOCK_SLACK = id_numbers.TICKS_PER_SECOND * 86400 << id_numbers.TICK_SHIFT


class NotVerified(Temporary):
    """What is in the archive is not what was copied; nothing was deleted."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One table's rows of the chunk: `column` IN `keys`."""

    hot: type[models.Model]
    cold: type[models.Model]
    column: str
    keys: list[int]

    @property
    def columns(self) -> list[str]:
        names = [field.attname for field in self.cold._meta.concrete_fields]
        return [name for name in names if name not in _ADDED]

    def rows(self, model: type[models.Model], using: str) -> Iterator[QuerySet[Any]]:
        for keys in _chunks(self.keys):
            yield model._base_manager.using(using).filter(**{f"{self.column}__in": keys})


def move(message_ids: Sequence[int], due: Due) -> int:
    """Move those of the messages that may still go; how many. Can be repeated at any point.

    Raises NotVerified, or OperationalError when a database is away; nothing is lost then.
    """
    # An archive that cannot be reached is found out before anything is locked.
    connections[cold_alias()].ensure_connection()
    return sql.retrying(partial(_move_once, sorted(message_ids), due))


def _move_once(message_ids: list[int], due: Due) -> int:
    with transaction.atomic(durable=True):
        going, copies = _locked(message_ids, due)
        if not going:
            return 0
        parts = [
            _Part(BizMsg, ColdBizMsg, "id", going),
            _Part(ReceiveMsg, ColdReceiveMsg, "id", copies),
            _Part(Attempt, ColdAttempt, "copy_id", copies),
        ]
        _copy(parts)
        failpoint("archiver_after_copy")
        counts = [_verified(part) for part in parts]
        failpoint("archiver_after_verify")
        for part, count in reversed(list(zip(parts, counts, strict=True))):
            _delete(part, count)
        failpoint("archiver_before_delete_commit")
    return len(going)


def _locked(message_ids: list[int], due: Due) -> tuple[list[int], list[int]]:
    """The messages that may go, as they are now, and their copies; both are ours until the end."""
    messages = BizMsg.objects.select_for_update().filter(
        id__in=message_ids, state=BizMsg.State.SPLIT
    )
    statuses: dict[int, set[int]] = {
        pk: set() for pk in messages.order_by("id").values_list("id", flat=True)
    }
    copies = ReceiveMsg.objects.select_for_update().filter(msg_id__in=list(statuses))
    rows = list(copies.order_by().values_list("id", "msg_id", "status"))
    for _id, message_id, status in rows:
        statuses[message_id].add(status)
    going = [pk for pk in statuses if due.allows(pk, statuses[pk])]
    chosen = set(going)
    return going, [copy_id for copy_id, message_id, _ in rows if message_id in chosen]


# -- copy ----------------------------------------------------------------------------------------
def _copy(parts: Sequence[_Part]) -> None:
    cold = cold_alias()
    with transaction.atomic(using=cold, savepoint=False):
        _clear(parts[0].keys, parts[1].keys, cold)
        for part in parts:
            if cold == HOT:
                _insert_select(part)
            else:
                _insert_rows(part, cold)


def _clear(message_ids: list[int], copies: list[int], cold: str) -> None:
    """Take away what an archiver that was killed has left of these messages."""
    least = max(0, min(message_ids) - _CLOCK_SLACK)  # spares the older partitions a search
    messages = ColdBizMsg.objects.using(cold).filter(id__in=message_ids)
    left = ColdReceiveMsg.objects.using(cold).filter(msg_id__in=message_ids, id__gte=least)
    copies = sorted({*copies, *left.values_list("id", flat=True)})
    for some in _chunks(copies):
        ColdAttempt.objects.using(cold).filter(copy_id__in=some, id__gte=least).delete()
    left.delete()
    messages.delete()


def _insert_select(part: _Part) -> None:
    quote = connections[HOT].ops.quote_name
    hot, cold = quote(part.hot._meta.db_table), quote(part.cold._meta.db_table)
    columns = ", ".join(map(quote, part.columns))
    for keys in _chunks(part.keys):
        places = ", ".join(["%s"] * len(keys))
        if part.cold is ColdBizMsg:
            named = ", ".join(f"m.{quote(column)}" for column in part.columns)
            statement = (
                f"INSERT INTO {cold} ({columns}, {quote('key')}, archived_at)"  # noqa: S608
                f" SELECT {named}, COALESCE(i.{quote('key')}, ''), {sql.now_sql()}"
                f" FROM {hot} m LEFT JOIN idempotency i ON i.id = m.id WHERE m.id IN ({places})"
            )
        else:
            statement = (
                f"INSERT INTO {cold} ({columns}) SELECT {columns} FROM {hot}"  # noqa: S608
                f" WHERE {quote(part.column)} IN ({places})"
            )
        with connections[HOT].cursor() as cursor:
            cursor.execute(statement, keys)


def _insert_rows(part: _Part, cold: str) -> None:
    table, now = part.cold._meta.db_table, sql.now(cold)
    for rows in part.rows(part.hot, HOT):
        values = [tuple(map(_plain, row)) for row in rows.values_list(*part.columns)]
        if part.cold is not ColdBizMsg:
            sql.insert(table, part.columns, values, using=cold)
            continue
        found = IdempotencyKey.objects.filter(id__in=[row[0] for row in values])
        keys = dict(found.values_list("id", "key"))
        named = [(*row, keys.get(row[0], ""), now) for row in values]
        sql.insert(table, [*part.columns, *_ADDED], named, using=cold)


# -- verify and delete ---------------------------------------------------------------------------
def _verified(part: _Part) -> int:
    """How many rows the part has; raises NotVerified when the archive does not hold them all."""
    hot = _fingerprint(part.rows(part.hot, HOT), part.columns)
    cold = _fingerprint(part.rows(part.cold, cold_alias()), part.columns)
    if hot != cold:
        raise NotVerified(f"{part.cold._meta.db_table}: {cold[0]} rows differ from {hot[0]}")
    return hot[0]


def _fingerprint(pages: Iterable[QuerySet[Any]], columns: Sequence[str]) -> tuple[int, str]:
    count, digest = 0, hashlib.sha256()
    for page in pages:
        for row in page.order_by("id").values_list(*columns):
            count += 1
            digest.update(repr(tuple(map(_plain, row))).encode())
    return count, digest.hexdigest()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _delete(part: _Part, count: int) -> None:
    deleted = sum(rows.delete()[0] for rows in part.rows(part.hot, HOT))
    if deleted != count:  # an attempt was written down meanwhile: nothing is deleted
        raise NotVerified(f"{part.hot._meta.db_table}: {deleted} rows to delete, {count} copied")


def _chunks(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]
