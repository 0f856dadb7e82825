"""Write a business system to a file. Nothing is changed."""

from collections.abc import Callable
from typing import Any, BinaryIO

from django.conf import settings
from django.utils import timezone

from msgplatform.core import cells, flows
from msgplatform.core.errors import InvalidInput
from msgplatform.core.secrets import key_files
from msgplatform.growth.moving.system_file import (
    VERSION,
    ApiKeyLine,
    Header,
    KeyLine,
    ObjectLine,
    Writer,
)
from msgplatform.models import ApiKey, Biz
from msgplatform.setup.platform_file import kinds
from msgplatform.setup.platform_file.exporting import sealed_body

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
        encryption_key=key_files.fingerprint(settings.ENCRYPTION_KEYS[0]),
        exported_at=timezone.now(),
    )
    writer = Writer(stream, header)
    for kind in kinds.kinds():
        rows = kind.visible_rows(kind.all_rows(), {name}).order_by("pk") if kind.moves else ()
        for row in rows:
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
            writer.write(ObjectLine(section, object_name, body, columns))
    for api_key in ApiKey.objects.filter(biz=system).order_by("id"):
        names = ApiKeyLine.__struct_fields__
        writer.write(ApiKeyLine(**{column: getattr(api_key, column) for column in names}))
    count = 0
    for store in (store for flow in flows.all() for store in flow.key_stores):
        for key in store.read(system.pk):
            writer.write(KeyLine(store.name, key))
            count += 1
            if count % PROGRESS_ROWS == 0:
                say(f"{count} idempotency keys are written.")
    writer.close()
    return count
