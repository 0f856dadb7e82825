"""The objects that files keep, and the files' origin: a label such as a commit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection
from django.utils import timezone

from msgplatform.core.data import engines, transactions
from msgplatform.core.errors import NotNow
from msgplatform.models import KeptObject
from msgplatform.setup.platform_file import kinds
from msgplatform.setup.resource import Resource

MAX_LABEL = 100
# Each apply of a file locks this row. No object has these names.
_TURN = {"section": "", "name": ""}
_BUSY = "Another platform file is being applied: repeat it later."
_turn_of_file = threading.Lock()


def of_row(row: Any) -> KeptObject | None:
    """The entry of a stored row, or None when no file keeps it."""
    for kind in kinds.kinds():
        if kind.model is type(row) and kind.all_rows().filter(pk=row.pk).exists():
            name = kinds.name_of(kinds.address_of(kind, row))
            rows = KeptObject.objects.filter(section=kinds.section_of(kind), name=name)
            return rows.first()
    return None


def keep(resource: Resource, row: Any, kept: KeptObject | None, label: str) -> None:
    """Note that the row is as a file says. Without a label no new row is noted; an object that is
    kept already keeps its label."""
    if kept is None and not label:
        return
    version = resource.version(row)
    label = label or (kept.label if kept else "")
    if kept is not None and (kept.label, kept.version) == (label, version):
        return
    KeptObject.objects.update_or_create(
        section=kinds.section_of(type(resource)),
        name=kinds.name_of(resource.address),
        defaults={
            "label": label, "version": version, "applied_at": timezone.now(),
            "applied_by": resource.actor[:150],
        },
    )  # fmt: skip


@contextmanager
def turn() -> Iterator[None]:
    """Hold the turn for the block, with the row for `lock_turn`. Writers of SQLite wait for each
    other, so a process lets only one file wait among them. Raises NotNow."""
    is_server = engines.of().is_server
    if not (is_server or _turn_of_file.acquire(blocking=False)):
        raise NotNow(_BUSY)
    try:
        KeptObject.objects.get_or_create(**_TURN, defaults={"applied_at": timezone.now()})
        yield
    finally:
        if not is_server:
            _turn_of_file.release()


def lock_turn() -> None:
    """Lock the row until the end of the transaction, so that nobody else applies a file. Raises
    NotNow if it is locked; SQLite waits instead, as for every write."""
    can_refuse = connection.features.has_select_for_update_nowait
    try:
        KeptObject.objects.select_for_update(nowait=can_refuse).get(**_TURN)
    except OperationalError as error:
        if not transactions.is_of_lock(error):
            raise
        raise NotNow(_BUSY) from None
