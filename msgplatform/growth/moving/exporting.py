"""Write a business system to a file. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from django.conf import settings
from django.utils import timezone

from msgplatform.core import cells
from msgplatform.core.errors import InvalidInput
from msgplatform.growth.moving import encoding, tables
from msgplatform.growth.moving.system_file import (
    VERSION,
    Header,
    KeyLine,
    TableLine,
    Writer,
    fingerprint,
)
from msgplatform.models import Biz

PROGRESS_ROWS = 50_000


def export(name: str, stream: BinaryIO, say: Callable[[str], None]) -> int:
    """Write the system; returns the number of its idempotency keys. `say` gets sentences about the
    progress. Raises InvalidInput, Undecryptable."""
    system = Biz.objects.filter(name=name).first()
    if system is None:
        raise InvalidInput(f"There is no business system named {name}.")
    header = Header(
        msgplatform_system=VERSION,
        system=name,
        cell=str(cells.own()),
        encryption_key=fingerprint(settings.ENCRYPTION_KEYS[0]),
        exported_at=timezone.now(),
    )
    writer = Writer(stream, header)
    for table in tables.all_tables():
        for row in table.rows(system.pk).iterator():
            writer.write(TableLine(table.name, encoding.encode(table, row)))
    count = 0
    for store in tables.key_stores():
        for key in store.read(system.pk):
            writer.write(KeyLine(store.name, key))
            count += 1
            if count % PROGRESS_ROWS == 0:
                say(f"{count} idempotency keys are written.")
    writer.close()
    return count
