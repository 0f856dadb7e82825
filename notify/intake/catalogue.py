"""Checks payloads against the schemas of the catalogue, for systems that validate their events.

A process keeps the compiled schemas, and notices a change within seconds. For a system that does
not validate a check is a look into a set.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TypeAlias

import msgspec
from django.db.models import Q

from msgplatform.core import logging
from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import schema as json_schema
from msgplatform.models import Biz
from notify.models import EventType

log = logging.get(__name__)

REFRESH_SECONDS = 5.0
# The weight of all quick validators in a process, about 60 MB. Further schemas have the slow one.
MAX_QUICK_WEIGHT = 300_000
_MAX_PATH = 200  # characters of a fault's place: a batch's answer may have a fault for each event


class _Unusable(msgspec.Struct, frozen=True):
    """A stored schema that this release cannot use."""

    reason: str


_Schema: TypeAlias = json_schema.Schema | _Unusable | None


class _Catalogue(msgspec.Struct, frozen=True):
    """The systems that validate, and the schemas by system (0: shared) and event type. None: a
    system's own entry without a schema."""

    validating: frozenset[int] = frozenset()
    schemas: Mapping[tuple[int, str], _Schema] = msgspec.field(default_factory=dict)

    def schema(self, biz: int, event_type: str) -> _Schema:
        return self.schemas.get((biz, event_type), self.schemas.get((0, event_type)))


class _EventTypes(Snapshot[_Catalogue]):
    def __init__(self) -> None:
        super().__init__(_Catalogue(), REFRESH_SECONDS)
        # The key is a row's id and its last change, so that only changed rows are compiled.
        self._schemas: dict[tuple[int, datetime], _Schema] = {}

    def load(self) -> _Catalogue:
        systems = Biz.objects.filter(validates_events=True).values_list("id", flat=True)
        validating = frozenset(systems)
        if not validating:
            self._schemas = {}
            return _Catalogue()
        relevance_condition = Q(biz=None, schema__isnull=False) | Q(biz_id__in=validating)
        rows = EventType.objects.filter(relevance_condition).order_by("id")
        versions = {
            (pk, changed_at): (owner, name)
            for pk, changed_at, owner, name in rows.values_list("id", "changed_at", "owner", "name")
        }
        self._compile([version for version in versions if version not in self._schemas])
        self._schemas = {v: self._schemas[v] for v in versions if v in self._schemas}
        return _Catalogue(validating, {versions[v]: schema for v, schema in self._schemas.items()})

    def _compile(self, versions: list[tuple[int, datetime]]) -> None:
        rows = EventType.objects.in_bulk([pk for pk, _changed_at in versions])
        for pk, changed_at in versions:
            row = rows.get(pk)
            if row is None or row.changed_at != changed_at:
                continue  # the row changed meanwhile: read it next time
            try:
                schema = row.schema and json_schema.compile_schema(row.schema)
                self._schemas[pk, changed_at] = schema or None
            except InvalidInput as error:  # the schema was not written by the form of this release
                log.error("schema_unusable", event_type=row.name, why=str(error))
                self._schemas[pk, changed_at] = _Unusable(str(error))
        weight = 0
        for version, schema in self._schemas.items():
            if isinstance(schema, json_schema.Schema) and schema.quick:
                weight += schema.quick.weight
                if weight > MAX_QUICK_WEIGHT:
                    self._schemas[version] = msgspec.structs.replace(schema, quick=None)


@lru_cache(maxsize=1)
def current() -> _EventTypes:
    return _EventTypes()


def passes_at_once(biz: int, event_type: str, payload: msgspec.Raw) -> bool:
    """True if `check` would accept the payload; takes no query and a few milliseconds."""
    event_types = current()
    if not event_types.is_fresh:
        return False
    if biz not in event_types.known.validating:
        return True
    schema = event_types.known.schema(biz, event_type)
    if schema is None or isinstance(schema, _Unusable):
        return schema is None
    try:
        return json_schema.accepts(schema, msgspec.json.decode(payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def check(biz: int, event_type: str, payload: bytes | msgspec.Raw) -> None:
    """Raises InvalidInput, naming path and reason, for a payload that does not match."""
    event_types = current()
    event_types.refresh()
    if biz not in event_types.known.validating:
        return
    schema = event_types.known.schema(biz, event_type)
    if schema is None:
        return
    if isinstance(schema, _Unusable):  # no payload can be validated
        words = f"it cannot be validated until the JSON Schema of {event_type} is corrected"
        raise InvalidInput(f"{words}: {schema.reason}", "payload")
    try:
        mismatch = json_schema.first_error(schema, msgspec.json.decode(payload))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # the intake says so
    except RecursionError:
        raise InvalidInput("it is nested too deeply for its JSON Schema", "payload") from None
    if mismatch:
        text = f"{mismatch.reason} (by the JSON Schema of {event_type})"
        raise InvalidInput(text, f"payload{mismatch.path}"[:_MAX_PATH])
