"""Checks payloads against the schemas of the catalogue, for systems that validate their events.

The schemas are compiled once and kept in the process; a change reaches it within seconds. A system
that does not validate costs a look into a set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
# Of all quick validators in a process: with some 60 MB. Further schemas have the slower one alone.
MAX_QUICK_WEIGHT = 300_000
_MAX_PATH = 200  # characters of the place of a fault: an answer for a batch has one for each event


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A schema that an earlier release accepted, and this one cannot use."""

    reason: str


_Schema: TypeAlias = json_schema.Schema | _Unusable | None


@dataclass(frozen=True)
class _Catalogue:
    """Systems that validate; and the schemas by system (0: shared) and event type. None: an entry
    of a system's own without a schema."""

    validating: frozenset[int] = frozenset()
    schemas: Mapping[tuple[int, str], _Schema] = field(default_factory=dict)

    def schema(self, biz: int, event_type: str) -> _Schema:
        if (biz, event_type) in self.schemas:
            return self.schemas[biz, event_type]
        return self.schemas.get((0, event_type))


class _EventTypes(Snapshot[_Catalogue]):
    def __init__(self) -> None:
        super().__init__(_Catalogue(), REFRESH_SECONDS)
        # By row and the time of its last change: only changed rows are read and compiled.
        self._compiled: dict[tuple[int, datetime], _Schema] = {}

    def load(self) -> _Catalogue:
        systems = Biz.objects.filter(validates_events=True).values_list("id", flat=True)
        validating = frozenset(systems)
        if not validating:
            self._compiled = {}
            return _Catalogue()
        relevant = Q(biz=None, schema__isnull=False) | Q(biz_id__in=validating)
        rows = EventType.objects.filter(relevant).order_by("id")
        versions = {
            (pk, changed_at): (owner, name)
            for pk, changed_at, owner, name in rows.values_list("id", "changed_at", "owner", "name")
        }
        self._compile([version for version in versions if version not in self._compiled])
        self._compiled = {v: self._compiled[v] for v in versions if v in self._compiled}
        return _Catalogue(validating, {versions[v]: schema for v, schema in self._compiled.items()})

    def _compile(self, versions: list[tuple[int, datetime]]) -> None:
        rows = EventType.objects.in_bulk([pk for pk, _changed_at in versions])
        for pk, changed_at in versions:
            row = rows.get(pk)
            if row is None or row.changed_at != changed_at:
                continue  # it was changed meanwhile: read next time
            try:
                schema = row.schema and json_schema.compiled(row.schema)
                self._compiled[pk, changed_at] = schema or None
            except InvalidInput as error:  # of an earlier release, or written past the form
                log.error("schema_unusable", event_type=row.name, why=str(error))
                self._compiled[pk, changed_at] = _Unusable(str(error))
        weight = 0
        for version, schema in self._compiled.items():
            if isinstance(schema, json_schema.Schema) and schema.quick:
                weight += schema.quick.weight
                if weight > MAX_QUICK_WEIGHT:
                    self._compiled[version] = replace(schema, quick=None)


@lru_cache(maxsize=1)
def _event_types() -> _EventTypes:
    return _EventTypes()


def forget() -> None:
    """Read the catalogue again at the next publish: this process has changed it."""
    _event_types.cache_clear()


def passes_at_once(biz: int, event_type: str, payload: msgspec.Raw) -> bool:
    """True if `check` would let it pass, found without a query and within milliseconds."""
    event_types = _event_types()
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
    types = _event_types()
    types.refresh()
    if biz not in types.known.validating:
        return
    schema = types.known.schema(biz, event_type)
    if schema is None:
        return
    if isinstance(schema, _Unusable):  # what it would let in is not known
        words = f"it cannot be validated until the JSON Schema of {event_type} is corrected"
        raise InvalidInput(f"{words}: {schema.reason}", "payload")
    try:
        wrong = json_schema.first_error(schema, msgspec.json.decode(payload))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # the intake says so
    except RecursionError:
        raise InvalidInput("it is nested too deeply for its JSON Schema", "payload") from None
    if wrong:
        raise InvalidInput(
            f"{wrong.reason} (by the JSON Schema of {event_type})",
            f"payload{wrong.path}"[:_MAX_PATH],
        )
