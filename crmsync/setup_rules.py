"""Rules for CRMs, sources and policies that involve more than one column, for forms and the API.

Each `…_faults` function yields (field, sentence) for every fault of an unsaved row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from django.db import transaction
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
# Names of settings in which adapters of others may hold an address that is not a URL.
_ADDRESS_SETTINGS = frozenset({"host", "hostname", "server", "domain", "instance", "port"})
# Field of a source in the poller → column of the row.
_COLUMNS = {"key": "key_column", "update_time": "time_column", "columns": "value_columns",
            "lag": "lag_seconds", "url": "database"}  # fmt: skip


def crm_faults(row: Crm) -> Faults:
    """Faults that the adapter finds in its settings and credentials."""
    try:
        open_adapter(row.adapter, row.settings, row.credentials).close()
    except InvalidInput as error:
        adapter_class = registry().adapters.get(row.adapter)
        yield (_column_of(adapter_class, error) if adapter_class else "adapter"), str(error)


def kept_credentials_faults(row: Crm, adapter: str, settings: Mapping[str, Any]) -> Faults:
    """A fault when the stored credentials would be sent to an address that is not in the stored
    `adapter` and `settings`, or by another adapter."""
    if not row.credentials:
        return
    if row.adapter != adapter:
        yield "credentials", _("The stored credentials were entered for the adapter %s: enter them "
                               "again.") % adapter  # fmt: skip
    new_addresses = addresses_of(row.adapter, row.settings) - addresses_of(adapter, settings)
    if new_addresses:
        words = _("The stored credentials were entered for another address: enter them again for "
                  "%(addresses)s.")  # fmt: skip
        yield "credentials", words % {"addresses": ", ".join(sorted(new_addresses))}


def addresses_of(adapter: str, settings: Mapping[str, Any]) -> frozenset[str]:
    """Scheme, host and port of every URL in the settings and in the adapter's defaults."""
    all_settings: Any = dict(settings)
    with suppress(InvalidInput):  # the adapter is not installed, or refuses the settings
        all_settings = msgspec.to_builtins(
            read_settings(registry().get(adapter).Settings, settings)
        )
    return frozenset(_addresses_in(all_settings))


def _addresses_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _addresses_in(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _addresses_in(inner, name)
    elif isinstance(value, str) and "://" in value:
        yield destinations.origin(value)
    elif name.lower() in _ADDRESS_SETTINGS and value not in (None, ""):
        yield f"{name} {value}"


def _column_of(adapter_class: type[CRMAdapter], error: InvalidInput) -> str:
    """The column that holds the value at fault: "settings" or "credentials"."""
    name = error.field.partition(".")[0].partition("[")[0]
    credentials = {*adapter_class.Credentials.__struct_fields__, "database", "credentials"}
    is_secret = name in credentials and name not in adapter_class.Settings.__struct_fields__
    return "credentials" if is_secret else "settings"


def source_faults(row: Source) -> Faults:
    """Faults in the database's address, else in the table and its columns."""
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
    """Faults in the times, the mapping, the filters, the prefix of keys and the system. In the
    transaction that saves the row it locks the CRM; a preview has none."""
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
    # Only the hive has these columns, by which its leads are filtered.
    for name, column in (("biz", "biz_id"), ("appkeys", "appkey")):
        if getattr(row, name) and column not in row.source.value_columns:
            yield name, _("The source has no column %s: leave this empty.") % column
    if row.sweep_cron and not row.source.version_column:
        yield "sweep_cron", _("The source has no version column to compare: leave this empty.")
    yield from _prefix_faults(row)
    yield from _system_faults(row)


def _system_faults(row: Policy) -> Faults:
    """People who are limited to a policy's system act on all of its records, by bulk jobs too."""
    stored = Policy.objects.filter(pk=row.pk).select_related("biz").first()
    if stored is None or row.biz_id in (None, stored.biz_id):
        return
    if Record.objects.filter(policy_id=row.pk).exists():
        yield (
            "biz",
            _("Records of %s exist: people who are limited to the new system could act on them. "
              "Leave it as it is, or empty for all systems.") % (stored.biz or _("all systems")),
        )  # fmt: skip


def _prefix_faults(row: Policy) -> Faults:
    """Two sources may have equal keys, and one prefix would make them one record in the CRM."""
    # Locked: of two requests with one prefix, the second sees the first one's policy.
    if transaction.get_connection().in_atomic_block:
        list(Crm.objects.select_for_update().filter(pk=row.crm_id).values_list("pk"))
    for other in Policy.objects.filter(crm_id=row.crm_id).exclude(pk=row.pk):
        if _are_mixed(row.key_prefix.casefold(), other.key_prefix.casefold()):
            yield (
                "key_prefix",
                _("%s uses it, or its prefix and a digit are the same: two sources of one CRM need "
                  "different prefixes, or one overwrites the other's records.") % other,
            )  # fmt: skip
            break
    # Compared here: in MariaDB's collation “A” and “a” are equal, and are other keys in the CRM.
    prefixes = Policy.objects.filter(pk=row.pk).values_list("key_prefix", flat=True)
    stored_prefix = prefixes.first()
    is_other = stored_prefix not in (None, row.key_prefix)
    if is_other and Record.objects.filter(policy_id=row.pk).exists():
        yield (
            "key_prefix",
            _("Records were sent under “%s”: with another prefix all of them would be made a "
              "second time.") % stored_prefix,
        )  # fmt: skip


def _are_mixed(prefix: str, other: str) -> bool:
    """True if keys of numbers under both prefixes can be equal: under “1”, the key 23 is the key
    123 of a policy without a prefix."""
    short, long = sorted((prefix, other), key=len)
    rest = long.removeprefix(short)
    return long.startswith(short) and (not rest or rest.isdecimal())
