"""The rules of CRMs, sources and policies that no column can have; forms and the API ask them.

Each function yields (field, sentence) for every fault of a row that is not stored yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.registry import open_adapter, registry
from crmsync.adapters.settings import read_settings
from crmsync.models import Crm, Policy, Record, Source
from crmsync.policies import mapping, schedule
from crmsync.poller.policy_poll import source_from_row
from msgplatform.core.data import databases
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations

Faults = Iterator[tuple[str, str]]
# Settings of other people's adapters that say where their CRM is without a URL.
_PLACES = frozenset({"host", "hostname", "server", "domain", "instance", "port"})
# Parts of a source's description, and the columns that hold them.
_COLUMNS = {"key": "key_column", "update_time": "time_column", "columns": "value_columns",
            "lag": "lag_seconds", "url": "database"}  # fmt: skip


def crm_faults(row: Crm) -> Faults:
    """The adapter alone knows which settings and credentials it takes."""
    try:
        open_adapter(row.adapter, row.settings, row.credentials).close()
    except InvalidInput as error:
        kind = registry().adapters.get(row.adapter)
        yield (_column_of(kind, error) if kind else "adapter"), str(error)


def kept_credentials_faults(row: Crm, adapter: str, settings: Mapping[str, Any]) -> Faults:
    """Credentials that were entered for the stored `adapter` and `settings` go nowhere else."""
    others = addresses_of(row.adapter, row.settings) - addresses_of(adapter, settings)
    if others and row.credentials:
        words = _("The stored credentials were entered for another address: enter them again for "
                  "%(addresses)s.")  # fmt: skip
        yield "credentials", words % {"addresses": ", ".join(sorted(others))}


def addresses_of(adapter: str, settings: Mapping[str, Any]) -> frozenset[str]:
    """Scheme, host and port of every URL in the settings, those left out included."""
    whole: Any = dict(settings)
    with suppress(InvalidInput):  # settings of an adapter that is gone, or that it refuses
        whole = msgspec.to_builtins(read_settings(registry().get(adapter).Settings, settings))
    return frozenset(_addresses_in(whole))


def _addresses_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _addresses_in(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _addresses_in(inner, name)
    elif isinstance(value, str) and "://" in value:
        yield destinations.origin(value)
    elif name in _PLACES and value not in (None, ""):
        yield f"{name} {value}"


def _column_of(kind: type[CRMAdapter], error: InvalidInput) -> str:
    """The column for an error of an adapter."""
    setting_name = error.field.partition(".")[0].partition("[")[0]
    secrets = set(kind.Credentials.__struct_fields__) | {"database", "credentials"}
    is_secret = setting_name in secrets and setting_name not in kind.Settings.__struct_fields__
    return "credentials" if is_secret else "settings"


def source_faults(row: Source) -> Faults:
    try:
        databases.refuse_unsafe(databases.configuration(row.database))
    except InvalidInput as error:
        yield "database", str(error)
        return
    try:
        source_from_row(row)
    except InvalidInput as error:
        yield _COLUMNS.get(error.field, error.field), str(error)


def policy_faults(row: Policy) -> Faults:
    checks: list[tuple[str, Callable[[Any], Any]]] = [
        ("cron", schedule.check_cron),
        ("hours", schedule.check_hours),
        ("sweep_cron", schedule.check_cron),
        ("mapping", lambda text: mapping.parse(text).check_columns(row.source.value_columns)),
    ]
    for name, check in checks:
        if value := getattr(row, name):
            try:
                check(value)
            except InvalidInput as error:
                yield name, str(error)
    for name, column in (("biz", "biz_id"), ("appkeys", "appkey")):
        if getattr(row, name) and column not in row.source.value_columns:
            yield name, _("The source has no column %s: leave this empty.") % column
    if row.sweep_cron and not row.source.version_column:
        yield "sweep_cron", _("The source has no version column to compare: leave this empty.")
    yield from _prefix_faults(row)


def _prefix_faults(row: Policy) -> Faults:
    # Keys of two sources may be equal numbers.
    same_prefix = Policy.objects.filter(crm_id=row.crm_id, key_prefix=row.key_prefix)
    if other := same_prefix.exclude(pk=row.pk).first():
        yield (
            "key_prefix",
            _("%s uses it: two sources of one CRM need different prefixes, or one overwrites the "
              "other's records.") % other,
        )  # fmt: skip
    stored = Policy.objects.filter(pk=row.pk).exclude(key_prefix=row.key_prefix).first()
    if stored and Record.objects.filter(policy_id=row.pk).exists():
        yield (
            "key_prefix",
            _("Records were sent under “%s”: with another prefix all of them would be made a "
              "second time.") % stored.key_prefix,
        )  # fmt: skip
