"""Store a business system from a file: everything is looked at before anything is written.

    the whole file ─▶ refusals ─▶ one transaction: the settings, with the work held and the system
    switched off ─▶ idempotency keys, page by page ─▶ the system as it was in the old cell

An import that was killed is repeated with the same file: it goes on with the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from msgplatform.core import cells
from msgplatform.core.cells import Cell
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.moving import MovedTable
from msgplatform.growth.moving import encoding, tables
from msgplatform.growth.moving.exporting import PROGRESS_ROWS
from msgplatform.growth.moving.system_file import Header, KeyLine, Reader, TableLine, fingerprint
from msgplatform.models import AuditLog, Biz

BEGUN, DONE = "system_import_begun", "system_imported"
_PAGE = 1000


class Refused(InvalidInput):
    """The file is not imported, and nothing was changed; the message says why."""


@dataclass(frozen=True)
class _PlannedRow:
    """A row of the settings; `is_new` is False for a shared row that is stored already."""

    table: MovedTable
    row: Any
    many: Mapping[str, list[Any]]
    is_new: bool


@dataclass
class _Plan:
    """The rows of the settings, each after those that it refers to."""

    rows: list[_PlannedRow] = field(default_factory=list)
    rows_by_name: dict[str, Any] = field(default_factory=dict)  # "notify.receive:name" → its row

    def add(self, table: MovedTable, values: encoding.Row) -> None:
        row = encoding.decode(table, values, self.rows_by_name)
        many = encoding.names_of_many(table, values)
        stored = _find_stored(table, row)
        if stored is not None:
            differences = encoding.differences(table, row, stored)
            if differences or not table.is_shared:
                kind, name = table.model._meta.verbose_name, getattr(row, table.identity[-1])
                fields = ""
                if differences:
                    fields = f" Other values than in the file: {', '.join(differences)}."
                raise Refused(
                    f"There is a row “{kind}” {name} here already.{fields} Nothing was changed."
                )
            row = stored
        elif table.identity == ("name",):
            try:
                row.clean()
            except ValidationError as error:
                raise Refused(f"{row.name}: {' '.join(error.messages)}") from None
        self.rows.append(_PlannedRow(table, row, many, stored is None))
        if "name" in values:
            self.rows_by_name[f"{table.name}:{values['name']}"] = row

    def store(self) -> None:
        """Write the rows that are not stored, in the caller's transaction."""
        for planned in self.rows:
            if not planned.is_new:
                continue
            row = planned.row
            for column in encoding.fields_of(planned.table):
                if column.is_relation:  # the other row has its number by now
                    setattr(row, column.name, getattr(row, column.name))
            planned.table.hold(row)
            row.save(force_insert=True)
            for name, others in planned.many.items():
                getattr(row, name).set(others)


def import_file(path: Path, say: Callable[[str], None]) -> int:
    """Import the system; returns the number of its idempotency keys. `say` gets sentences about the
    progress. Raises InvalidInput."""
    file = Reader(path)
    name = file.header.system
    _refuse_place(file.header)
    biz = Biz.objects.filter(name=name).first()
    if biz is None:
        plan = _plan(file)
        with transaction.atomic():
            plan.store()
            _log(BEGUN, file)
        biz = Biz.objects.get(name=name)
    else:
        if _is_logged(DONE, file):
            raise Refused(f"{name} was imported from this file already; nothing was changed.")
        if not _is_logged(BEGUN, file):
            raise Refused(
                f"There is a business system {name} here already, which is not from this file; "
                "nothing was changed."
            )
        say(f"The import of {name} had begun, and goes on.")
    stores, count = {store.name: store for store in tables.key_stores()}, 0
    key_lines = (line for line in file if isinstance(line, KeyLine))
    for store_name, lines in groupby(key_lines, key=lambda line: line.keys):
        while page := list(islice(lines, _PAGE)):
            stores[store_name].write(biz.pk, [line.row for line in page])
            count += len(page)
            if count % PROGRESS_ROWS == 0:
                say(f"{count} idempotency keys are stored.")
    (system,) = _rows(file, tables.SYSTEM)
    with transaction.atomic():
        Biz.objects.filter(pk=biz.pk).update(enabled=system["enabled"])
        _log(DONE, file)
    return count


def resume(path: Path) -> int:
    """Resume the work that the import held; returns the number of rows. Raises InvalidInput."""
    file = Reader(path)
    if not _is_logged(DONE, file):
        raise Refused(f"This file of {file.header.system} was not imported here: import it first.")
    count = 0
    for table in tables.all_tables():
        held_rows = []
        for values in _rows(file, table) if table is not tables.SYSTEM else ():
            row = encoding.decode(table, values, {})
            if table.hold(row) and (stored := _find_stored(table, row)) is not None:
                held_rows.append(stored)
        table.resume(held_rows)
        count += len(held_rows)
    return count


def code_for_proxy(path: Path) -> str:
    """This cell in a line for the proxy. Raises InvalidInput where the file was not imported, as in
    the cell that the system leaves: its requests would come back."""
    file = Reader(path)
    if not _is_logged(DONE, file):
        raise Refused(
            f"This file of {file.header.system} comes from cell {file.header.cell} and was not "
            f"imported here, in cell {cells.own()}: print these lines in the cell that imported it."
        )
    return cells.own().code


def names_for_proxy(path: Path) -> list[str]:
    """The names by which a proxy finds the cell of a request, as `deploy/nginx/cells.conf` makes
    them: prefixes of API keys, and names that are in an address. Raises InvalidInput."""
    file, names = Reader(path), []
    for table in tables.all_tables():
        if table.proxy_name:
            before, field_name = table.proxy_name
            names += [f"{before}{values[field_name]}" for values in _rows(file, table)]
    return names


def _refuse_place(header: Header) -> None:
    this_cell = cells.own()
    try:
        source = Cell.parse(header.cell)
    except ValueError:
        raise Refused("The header of the file names no cell.") from None
    if this_cell.is_only or source.is_only:
        raise Refused(
            "The ids of platforms without cells are not unique together: set CELL in both "
            "(manage.py set_cell), and export the system again."
        )
    if this_cell == source:
        raise Refused(
            f"The file comes from cell {source}, and this is cell {this_cell}: nothing to do."
        )
    if this_cell.count != source.count:
        raise Refused(
            f"The file comes from cell {source}, and this is cell {this_cell}: all cells must have "
            "the same number of cells."
        )
    names = [fingerprint(key) for key in settings.ENCRYPTION_KEYS]
    if header.encryption_key not in names:
        raise Refused(
            f"The secrets in the file are encrypted with the key {header.encryption_key} (a "
            f"fingerprint), and ENCRYPTION_KEY here has {', '.join(names)}. Add the first key of "
            "the old cell to ENCRYPTION_KEY, as the last one, and restart the programs; "
            "manage.py rotate_encryption_key takes it out of use afterwards."
        )


def _plan(file: Reader) -> _Plan:
    by_name = {table.name: table for table in tables.all_tables()}
    stores = {store.name for store in tables.key_stores()}
    plan = _Plan()
    for line in file:
        name = line.table if isinstance(line, TableLine) else line.keys
        if name not in (by_name if isinstance(line, TableLine) else stores):
            raise Refused(
                f"The file has rows of {name}, and this cell has no such table: FLOWS must name "
                "the same flows in both cells."
            )
        if isinstance(line, TableLine):
            plan.add(by_name[name], line.row)
    systems = [planned.row.name for planned in plan.rows if planned.table is tables.SYSTEM]
    if systems != [file.header.system]:
        raise Refused("The file does not have one business system, that of its header.")
    return plan


def _find_stored(table: MovedTable, row: Any) -> Any:
    """The row of this cell with the same identity, or None."""
    values = {name: getattr(row, name) for name in table.identity}
    # A row that is not stored yet has no others that refer to it.
    if any(hasattr(value, "pk") and value.pk is None for value in values.values()):
        return None
    return table.model._default_manager.filter(**values).first()


def _rows(file: Reader, table: MovedTable) -> Iterator[encoding.Row]:
    for line in file:
        if isinstance(line, TableLine) and line.table == table.name:
            yield line.row


def _log(action: str, file: Reader) -> None:
    AuditLog.objects.create(
        actor="manage.py import_system", action=action, target=file.header.system,
        detail={"sha256": file.sha256, "cell": file.header.cell},
    )  # fmt: skip


def _is_logged(action: str, file: Reader) -> bool:
    entries = AuditLog.objects.filter(action=action, target=file.header.system)
    return any(entry.detail.get("sha256") == file.sha256 for entry in entries)
