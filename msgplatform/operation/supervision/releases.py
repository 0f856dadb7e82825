"""The release of which the programs of `up` start, in a file of the state directory.

A program reads it at each start (`core/servers/child_process.py`), so a program that is started
again, also after a crash, is of the release that the file names.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec
from django.conf import settings

from msgplatform import __version__
from msgplatform.core.data import migration_stages


class Release(msgspec.Struct, frozen=True):
    """`newest` has the newest migration of each app."""

    name: str
    python: str
    folder: str
    newest: dict[str, str]


class Address(msgspec.Struct, frozen=True):
    """Where the web server listens, and the host (with port) that people ask for."""

    listens: tuple[str, int]
    host: str


class Record(msgspec.Struct, frozen=True):
    """`previous` is the release to which an update can go back. `is_back`: True if `current` was
    gone back to, and `previous` is the one that was left."""

    current: Release
    previous: Release | None
    address: Address
    is_back: bool = False


def own() -> Release:
    return Release(__version__, sys.executable, str(settings.BASE_DIR), migration_stages.lock())


def read(path: Path) -> Record | None:
    """None if no platform was started here, or one that wrote something else. Raises OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write(path: Path, record: Record) -> None:
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def note_start(path: Path, address: Address) -> None:
    """Name this release; the release of the last start becomes the previous one. Static files of
    other releases are removed."""
    record, release, previous, is_back = read(path), own(), None, False
    if record and record.current == release:
        previous, is_back = record.previous, record.is_back
    elif record:
        previous = record.current
    write(path, Record(release, previous, address, is_back))
    names = {release.name, previous.name if previous else ""}
    for manifest in (Path(settings.STATE_DIR) / "static").glob("*/staticfiles.json"):
        if manifest.parent.name not in names:
            shutil.rmtree(manifest.parent, ignore_errors=True)
