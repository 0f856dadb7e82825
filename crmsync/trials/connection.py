"""The test of a CRM's settings and credentials."""

from __future__ import annotations

from contextlib import suppress

from crmsync.adapters.base import Check
from crmsync.adapters.registry import open_adapter
from crmsync.models import Crm, Policy
from crmsync.policies import mapping
from crmsync.trials import probing
from msgplatform.core.errors import InvalidInput, PlatformError


def mapped_fields(row: Crm, max_policies: int | None = None) -> list[str]:
    """The fields of a CRM, saved or not, that its policies fill in, each once; only of the first
    `max_policies`."""
    names: list[str] = []
    mappings = Policy.objects.filter(crm_id=row.pk).values_list("mapping", flat=True)
    for text in mappings[:max_policies]:
        with suppress(InvalidInput):  # an alert about the policy says so
            names += mapping.parse(text).fields
    return list(dict.fromkeys(names))


def check(row: Crm) -> Check:
    """Test a CRM's settings and credentials, and the fields of its mappings."""
    names = mapped_fields(row)
    try:
        settings, credentials = row.settings, row.credentials

        def work() -> Check:
            adapter = open_adapter(row.adapter, settings, credentials)
            try:
                return adapter.check(names)
            finally:
                adapter.close()

        return probing.ask(work)
    except PlatformError as error:
        return Check("settings", probing.sentence(error))
