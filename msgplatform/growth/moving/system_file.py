"""The file with a business system, written by `export`, which changes nothing: JSON lines.

    {"msgplatform_system": 1, "system": …, "cell": …, "encryption_key": …, "exported_at": …}
    {"section": "consumers", "name": …, "body": {…}, "columns": {…}}  an entry of a platform file
    {"prefix": …, "hash": …, "scopes": […], …}                        an API key
    {"keys": "notify.idempotencykey", "row": […]}                     an idempotency key
    {"lines": …, "sha256": …}                         of all lines before

Secrets stay encrypted; the header has a fingerprint of the key that reads them, never a key.
"""

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from django.conf import settings
from django.utils import timezone

from msgplatform.core import cells, flows
from msgplatform.core.errors import InvalidInput
from msgplatform.core.secrets import key_files
from msgplatform.models import ApiKey, Biz
from msgplatform.setup.platform_file import kinds
from msgplatform.setup.platform_file.exporting import sealed_body

VERSION = 1
# The longest line is an event type with its schema and example.
MAX_LINE_BYTES = 4 * 1024 * 1024
PROGRESS_ROWS = 50_000  # keys between two sentences about the progress


class Header(msgspec.Struct, kw_only=True):
    """The first line."""

    msgplatform_system: int
    system: str
    cell: str
    encryption_key: str
    exported_at: datetime


class ObjectLine(msgspec.Struct, forbid_unknown_fields=True):
    """An object as a platform file has it, with `Declaration.moved_columns` as texts."""

    section: str
    name: str
    body: dict[str, Any]
    columns: dict[str, str | None]


class ApiKeyLine(msgspec.Struct, forbid_unknown_fields=True):
    """An API key; it is stored as a hash."""

    name: str
    prefix: str
    hash: str
    scopes: list[str]
    systems: list[str] | None
    expires_at: datetime | None
    revoked_at: datetime | None


class KeyLine(msgspec.Struct, forbid_unknown_fields=True):
    """An idempotency key of a store."""

    keys: str
    row: list[Any]


class _End(msgspec.Struct, forbid_unknown_fields=True):
    lines: int
    sha256: str


Line = ObjectLine | ApiKeyLine | KeyLine


class Reader:
    """Reads a complete file. Raises InvalidInput for a file that is cut short or changed, or of
    another format or release."""

    def __init__(self, path: Path) -> None:
        self._path = path
        digest, lines, last = hashlib.sha256(), 0, b""
        header: Header | None = None
        with self._path.open("rb") as stream:
            for text in _lines(stream):
                if header is None:
                    try:
                        fields: Any = msgspec.json.decode(text)
                        version = fields["msgplatform_system"]
                        if isinstance(version, int) and version > VERSION:
                            raise InvalidInput(
                                f"The file has the form {version}, and this release reads "
                                f"{VERSION}: it is of a newer release. Update this cell first."
                            )
                        header = msgspec.convert(fields, Header)
                    except (msgspec.DecodeError, KeyError, TypeError):
                        words = "The file does not begin as export_system writes it."
                        raise InvalidInput(words) from None
                if last:
                    digest.update(last)
                    lines += 1
                last = text
        try:
            end = msgspec.json.decode(last, type=_End)
        except msgspec.DecodeError:
            raise InvalidInput(
                f"The file ends after {lines} lines without its last line: it was cut short. "
                "Export the system again."
            ) from None
        if header is None or end.lines != lines or end.sha256 != digest.hexdigest():
            raise InvalidInput(
                "The checksum of the file is wrong: a line was changed or is missing. Export the "
                "system again."
            )
        self.sha256, self.header = end.sha256, header

    def __iter__(self) -> Iterator[Line]:
        """The lines between the first and the last."""
        with self._path.open("rb") as stream:
            for number, text in enumerate(_lines(stream), 1):
                if number == 1:
                    continue
                for kind in (KeyLine, ObjectLine, ApiKeyLine, _End):
                    try:
                        line: Any = msgspec.json.decode(text, type=kind)
                    except msgspec.ValidationError:
                        continue
                    if not isinstance(line, _End):
                        yield line
                    break
                else:
                    raise InvalidInput(f"Line {number} of the file is of no known form.")


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while text := stream.readline(MAX_LINE_BYTES + 1):
        if len(text) > MAX_LINE_BYTES:
            raise InvalidInput("The file has a line that is too long: export_system writes none.")
        yield text


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
        encryption_key=key_files.fingerprint(settings.ENCRYPTION_KEYS[0]),
        exported_at=timezone.now(),
    )
    digest, line_count = hashlib.sha256(), 0

    def write(line: msgspec.Struct) -> None:
        nonlocal line_count
        text = msgspec.json.encode(line) + b"\n"
        digest.update(text)
        stream.write(text)
        line_count += 1

    write(header)
    for kind in kinds.kinds():
        rows = kind.join_relations(kind.visible_rows(kind.all_rows(), {name})).order_by("pk")
        for row in rows if kind.moves else ():
            address = kinds.address_of(kind, row)
            object_name = kinds.name_of(address)
            if not kinds.can_name(kind, address):
                raise InvalidInput(f"A file cannot name the {kind.noun} {object_name}: rename it.")
            columns = {}
            for column_name in kind.moved_columns:
                column: Any = kind.model._meta.get_field(column_name)
                is_set = column.value_from_object(row) is not None
                columns[column_name] = column.value_to_string(row) if is_set else None
            section, body = kinds.section_of(kind), sealed_body(kind, row)
            write(ObjectLine(section, object_name, body, columns))
    for api_key in ApiKey.objects.filter(biz=system).order_by("id"):
        names = ApiKeyLine.__struct_fields__
        write(ApiKeyLine(**{column: getattr(api_key, column) for column in names}))
    count = 0
    for store in (store for flow in flows.all() for store in flow.key_stores):
        for key in store.read(system.pk):
            write(KeyLine(store.name, key))
            count += 1
            if count % PROGRESS_ROWS == 0:
                say(f"{count} idempotency keys are written.")
    stream.write(msgspec.json.encode(_End(line_count, digest.hexdigest())) + b"\n")
    stream.flush()
    return count
