"""Store a business system from a file. The whole file is checked before a row is written.

    the whole file ─▶ refusals ─▶ one transaction: objects as a platform file is applied, API keys,
    with the work held and the system switched off ─▶ idempotency keys, page by page ─▶ the system
    as it was in the old cell

After a kill, repeat the import with the same file: the import goes on with the keys.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404

from msgplatform.core import cells, flows
from msgplatform.core.cells import Cell
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.contract import KeyStore
from msgplatform.core.secrets import key_files
from msgplatform.growth.moving import system_file
from msgplatform.growth.moving.system_file import ApiKeyLine, Header, KeyLine, ObjectLine, Reader
from msgplatform.models import ApiKey, AuditLog, Biz
from msgplatform.setup.platform_file import applying, kinds, reading
from msgplatform.setup.platform_file.kinds import Kind
from msgplatform.setup.platform_file.outcome import Action, FileFaults
from msgplatform.setup.platform_file.reading import Entry
from msgplatform.setup.platform_file.text import Text

BEGUN, DONE = "system_import_begun", "system_imported"
_ACTOR = "manage.py import_system"
_PAGE = 1000
_SYSTEMS = "systems"  # the section


class Refused(InvalidInput):
    """The file is not imported, and nothing was changed; the message says why."""


def import_file(path: Path, say: Callable[[str], None]) -> int:
    """Import the system; returns the number of its idempotency keys. `say` gets the progress in
    sentences. Raises InvalidInput."""
    file = Reader(path)
    name = file.header.system
    _refuse_place(file.header)
    biz = Biz.objects.filter(name=name).first()
    if biz is None:
        with transaction.atomic():
            _store_objects(file)
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
    stores, count = _key_stores(), 0
    key_lines = (line for line in file if isinstance(line, KeyLine))
    for store_name, lines in groupby(key_lines, key=lambda line: line.keys):
        while page := list(islice(lines, _PAGE)):
            stores[store_name].write(biz.pk, [line.row for line in page])
            count += len(page)
            if count % system_file.PROGRESS_ROWS == 0:
                say(f"{count} idempotency keys are stored.")
    (system,) = (line for line in _objects(file) if line.section == _SYSTEMS)
    with transaction.atomic():
        Biz.objects.filter(pk=biz.pk).update(enabled=system.body.get("enabled", True))
        _log(DONE, file)
    return count


def resume(path: Path) -> int:
    """Resume the work that the import held; returns the number of rows. Raises InvalidInput."""
    file = Reader(path)
    if not _is_logged(DONE, file):
        raise Refused(f"This file of {file.header.system} was not imported here: import it first.")
    held_rows: dict[Kind, list[Any]] = {}
    for line in _objects(file):
        kind, address = kinds.parse_name(line.section, line.name)
        row = kind(_ACTOR, **address).rows().first() if kind.moved_columns else None
        if row is not None:
            for name, value in _columns(kind, line).items():
                setattr(row, name, value)  # as it was in the old cell
            if kind.hold(row):
                held_rows.setdefault(kind, []).append(row)
    with transaction.atomic():
        for kind, rows in held_rows.items():
            kind.resume(rows)
        if held_rows:
            _log("system_resumed", file)
    return sum(map(len, held_rows.values()))


def code_for_proxy(path: Path) -> str:
    """The code of this cell for the proxy. Raises InvalidInput unless this cell imported the file:
    the old cell's code would send requests back to the old cell."""
    file = Reader(path)
    if not _is_logged(DONE, file):
        raise Refused(
            f"This file of {file.header.system} comes from cell {file.header.cell} and was not "
            f"imported here, in cell {cells.own()}: print these lines in the cell that imported it."
        )
    return cells.own().code


def names_for_proxy(path: Path) -> list[str]:
    """The names by which a proxy finds the cell of a request (`deploy/nginx/cells.conf`): prefixes
    of API keys, and names in addresses. Raises InvalidInput."""
    names = []
    for line in Reader(path):
        if isinstance(line, ApiKeyLine):
            names.append(f"mp_{line.prefix}")
        elif isinstance(line, ObjectLine):
            kind, _address = kinds.parse_name(line.section, line.name)
            names += [line.name] if kind.is_in_addresses else []
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
    names = [key_files.fingerprint(key) for key in settings.ENCRYPTION_KEYS]
    if header.encryption_key not in names:
        raise Refused(
            f"The secrets in the file are encrypted with the key {header.encryption_key} (a "
            f"fingerprint), and ENCRYPTION_KEY here has {', '.join(names)}. Add the first key of "
            "the old cell to ENCRYPTION_KEY, as the last one, and restart the programs; "
            "manage.py rotate_encryption_key takes it out of use afterwards."
        )


def _store_objects(file: Reader) -> None:
    """Store the objects and the API keys in the caller's transaction, with the work held and the
    system switched off. Raises InvalidInput."""
    sections: dict[str, dict[str, Any]] = {}
    lines = {(line.section, line.name): line for line in _objects(file)}
    for line in lines.values():
        sections.setdefault(line.section, {})[line.name] = line.body
    stores = {line.keys for line in file if isinstance(line, KeyLine)}
    unknown = sorted((sections.keys() - kinds.sections().keys()) | (stores - _key_stores().keys()))
    if unknown:
        raise Refused(
            f"The file has rows of {', '.join(unknown)}, and this cell has none: FLOWS must name "
            "the same flows in both cells."
        )
    if list(sections.get(_SYSTEMS, ())) != [file.header.system]:
        raise Refused("The file does not have one business system, that of its header.")
    try:
        description = reading.read_exported(Text(sections))
        for entry in description.entries:
            with suppress(Http404):  # neither the system nor its objects exist here
                resource = entry.kind(_ACTOR, **entry.address)
                if entry.kind.system_lookup and resource.rows().exists():
                    raise Refused(_words(entry))
        description.sections.clear()  # `apply` must not look at other objects in these sections
        outcome = applying.apply(description, applying.Options(_ACTOR, is_move=True))
    except FileFaults as faults:
        raise Refused(f"{faults} Nothing was changed.") from None
    changes = {(change.section, change.name): change for change in outcome.changes}
    for entry in description.entries:
        kind, change = entry.kind, changes[entry.section, entry.name]
        columns = _columns(kind, lines[entry.section, entry.name])
        row = kind(_ACTOR, **entry.address).rows().get()
        if change.action != Action.ADDED:
            different = [name for name, value in columns.items() if getattr(row, name) != value]
            if different := [*change.differences, *change.changed_secrets, *different]:
                raise Refused(_words(entry, different))
            continue
        for name, value in columns.items():
            setattr(row, name, value)
        if names := {*columns, *kind.hold(row)}:
            row.save(update_fields=names)
    Biz.objects.filter(name=file.header.system).update(enabled=False)
    system = Biz.objects.get(name=file.header.system)
    for api_key in file:
        if isinstance(api_key, ApiKeyLine):
            if ApiKey.objects.filter(prefix=api_key.prefix).exists():
                raise Refused(f"There is an API key mp_{api_key.prefix} here already.")
            ApiKey.objects.create(biz=system, **msgspec.structs.asdict(api_key))


def _words(entry: Entry, different: Sequence[str] = ()) -> str:
    fields = f" Other values than in the file: {', '.join(different)}." if different else ""
    return f"There is a {entry.kind.noun} {entry.name} here already.{fields} Nothing was changed."


def _objects(file: Reader) -> Iterator[ObjectLine]:
    return (line for line in file if isinstance(line, ObjectLine))


def _columns(kind: Kind, line: ObjectLine) -> dict[str, Any]:
    """Values of `moved_columns`. Raises InvalidInput."""
    if line.columns.keys() != set(kind.moved_columns):
        names = ", ".join(sorted(line.columns.keys() ^ set(kind.moved_columns)))
        raise Refused(f"{line.name} has other columns than in this release: {names}.")
    meta: Any = kind.model._meta
    try:
        return {
            name: None if text is None else meta.get_field(name).to_python(text)
            for name, text in line.columns.items()
        }
    except ValidationError as error:
        raise Refused(f"{line.name} is not usable: {' '.join(error.messages)}") from None


def _key_stores() -> dict[str, KeyStore]:
    return {store.name: store for flow in flows.all() for store in flow.key_stores}


def _log(action: str, file: Reader) -> None:
    header = file.header
    AuditLog.record(_ACTOR, action, header.system, sha256=file.sha256, cell=header.cell)


def _is_logged(action: str, file: Reader) -> bool:
    entries = AuditLog.objects.filter(action=action, target=file.header.system)
    return any(entry.detail.get("sha256") == file.sha256 for entry in entries)
