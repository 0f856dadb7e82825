"""The list of erasures outside of the database, because a restored database has an older list.

`STATE_DIR/erasures.jsonl` has a line for each erasure: its key, times, reason and, encrypted by
ENCRYPTION_KEY, the identifiers. Every machine with a program that starts or runs erasures has the
file, and `run_bulk` keeps it equal to the table: an erasure that only the file has is one that a
restored database has lost, and is run once more. A cancelled one leaves `{"key": …, "cancelled":
true}`, so that neither a restored database nor the file of another machine brings it back.
"""

import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import IntegrityError, transaction

from msgplatform.company.person_data.models import Erasure
from msgplatform.core import logging
from msgplatform.core.data import chunks, sql
from msgplatform.core.errors import Undecryptable
from msgplatform.core.secrets import encryption
from msgplatform.models import AuditLog

log = logging.get(__name__)

FILE_NAME = "erasures.jsonl"
CHUNK = 500  # keys of one statement
Line = dict[str, Any]


def path() -> Path:
    return Path(settings.STATE_DIR) / FILE_NAME


def add(row: Erasure) -> None:
    """Add an erasure. Raises OSError."""
    with _lock():
        lines = _read()
        if not _is_cancelled(lines.get(row.key)):
            _write({**lines, row.key: _line(row)})


def cancel(key: str) -> None:
    """Note in the list that an erasure was cancelled. Raises OSError."""
    with _lock():
        _write({**_read(), key: {"key": key, "cancelled": True}})


def keys() -> set[str]:
    """The keys of all lines. Raises OSError."""
    with _lock():
        return set(_read())


def synchronise(
    rows: Iterable[Erasure], cancelled_keys: Collection[str], removed_keys: Collection[str]
) -> None:
    """Write to the file what only the table has, encrypted with the present key, and remove lines
    that are no longer kept. Raises OSError."""
    with _lock():
        lines = _read()
        new_lines = {key: line for key, line in lines.items() if key not in removed_keys}
        new_lines |= {key: {"key": key, "cancelled": True} for key in cancelled_keys}
        for row in rows:
            line = new_lines.get(row.key)
            if _is_cancelled(line):
                continue
            states = encryption.State.OLD, encryption.State.UNREADABLE
            if line is None or encryption.state(line["identifiers"]) in states:
                new_lines[row.key] = _line(row)
        if new_lines != lines:
            _write(new_lines)


def read_into_database() -> int:
    """Make rows of the erasures that only the file has, so that they run; returns their number.
    Cancel erasures that the file has as cancelled. Raises OSError."""
    with _lock():
        lines = _read()
    cancelled_keys = [key for key, line in lines.items() if _is_cancelled(line)]
    # A restored database has cancelled erasures as open.
    for page in chunks(cancelled_keys, CHUNK):
        for row in Erasure.objects.filter(key__in=page, state__in=Erasure.OPEN):
            change = {"state": Erasure.State.CANCELLED, "finished_at": sql.now(), "identifiers": {}}
            with transaction.atomic():
                if Erasure.objects.filter(pk=row.pk, state__in=Erasure.OPEN).update(**change):
                    AuditLog.record("run_bulk", "erasure_cancelled", row.audit_target)
    for key in cancelled_keys:
        del lines[key]
    known_keys: set[str] = set()
    for page in chunks(list(lines), CHUNK):
        known_keys.update(Erasure.objects.filter(key__in=page).values_list("key", flat=True))
    count = 0
    for key, line in lines.items():
        if key in known_keys:
            continue
        try:
            identifiers = json.loads(encryption.decrypt(line["identifiers"]))
        except (Undecryptable, ValueError):
            log.error("erasure_unreadable", erasure=key, file=str(path()))
            continue
        try:
            Erasure.objects.create(
                key=key, identifiers=identifiers, hashes=line["hashes"], reason=line["reason"],
                ends_open=line["ends_open"], created_by=line["created_by"],
                created_at=datetime.fromisoformat(line["created_at"]),
                repeated_at=sql.now(),
            )  # fmt: skip
        except IntegrityError:  # another program has just read the file
            continue
        log.warning("erasure_repeated", erasure=key)
        count += 1
    return count


def has_file() -> bool:
    return path().exists()


def version() -> tuple[int, ...]:
    """Numbers that differ after a change of the file; () without a file. Raises OSError, also if
    the file cannot be written."""
    if not has_file():
        return ()
    with _lock():
        stat = path().stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _line(row: Erasure) -> Line:
    return {
        "key": row.key, "created_at": row.created_at.isoformat(), "created_by": row.created_by,
        "reason": row.reason, "hashes": list(row.hashes), "ends_open": row.ends_open,
        "identifiers": encryption.encrypt(json.dumps(dict(row.identifiers))),
    }  # fmt: skip


def _is_cancelled(line: Line | None) -> bool:
    return line is not None and bool(line.get("cancelled"))


def _read() -> dict[str, Line]:
    """The lines by key. A line that is no JSON, cut off by a full disk, is left out."""
    lines: dict[str, Line] = {}
    if not has_file():
        return lines
    # Each line is decoded by itself, because the cut may be inside a character.
    for content in filter(None, path().read_bytes().split(b"\n")):
        try:
            line = json.loads(content.decode())
            lines[line["key"]] = line
        except (ValueError, KeyError, TypeError):
            log.error("erasure_list_damaged", file=str(path()), line=str(content[:40]))
    return lines


def _write(lines: Mapping[str, Line]) -> None:
    """Replace the file at once: a copy made meanwhile has either the old or the new content."""
    new_path = path().with_name(f"{FILE_NAME}.new")
    with _open_file(new_path) as file:
        file.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines.values())
        file.flush()
        os.fsync(file.fileno())
    new_path.replace(path())


@contextmanager
def _lock() -> Iterator[None]:
    """Hold the lock that lets only one program change the file."""
    path().parent.mkdir(parents=True, exist_ok=True)
    lock_path = path().with_name(f"{FILE_NAME}.lock")
    with _open_file(lock_path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_file(file_path: Path) -> IO[str]:
    """Open a file, which only this user can read, for writing from its beginning."""
    descriptor = os.open(file_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8")
