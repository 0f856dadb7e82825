"""Adapters by name: the platform's own, and others from installed packages.

A package names its adapter in the entry point group `msgplatform.crm_adapters`. An adapter that
cannot be loaded is listed with the reason, and does not stop the others.
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters.base import CRMAdapter
from msgplatform.core import logging
from msgplatform.core.errors import InvalidInput

GROUP = "msgplatform.crm_adapters"
_OWN = (
    EntryPoint("sql", "crmsync.adapters.sql.adapter:SqlAdapter", GROUP),
    EntryPoint("http", "crmsync.adapters.http.adapter:HttpAdapter", GROUP),
    EntryPoint("hubspot", "crmsync.adapters.hubspot.adapter:HubSpotAdapter", GROUP),
    EntryPoint("salesforce", "crmsync.adapters.salesforce.adapter:SalesforceAdapter", GROUP),
    EntryPoint("sandbox", "crmsync.adapters.sandbox:SandboxAdapter", GROUP),
    EntryPoint("tryton", "crmsync.adapters.tryton.adapter:TrytonAdapter", GROUP),
)

log = logging.get(__name__)


class Registry(msgspec.Struct, frozen=True):
    """`adapters` by name; `broken` maps the names of adapters that cannot be loaded to reasons."""

    adapters: Mapping[str, type[CRMAdapter]] = msgspec.field(default_factory=dict)
    broken: Mapping[str, str] = msgspec.field(default_factory=dict)

    def get(self, name: str) -> type[CRMAdapter]:
        """The adapter class. Raises InvalidInput for an unknown or a broken name."""
        if name in self.adapters:
            return self.adapters[name]
        if name in self.broken:
            words = _("The adapter %(name)s cannot be used: %(reason)s")
            raise InvalidInput(words % {"name": name, "reason": self.broken[name]}, "adapter")
        names = ", ".join(sorted(self.adapters))
        words = _("There is no adapter %(name)s. Known are: %(known)s.")
        raise InvalidInput(words % {"name": name, "known": names}, "adapter")


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Load the adapters, once in each process: a new package is seen after a restart."""
    adapters: dict[str, type[CRMAdapter]] = {}
    reasons: dict[str, str] = {}
    for point in (*_OWN, *entry_points(group=GROUP)):
        if point.name in adapters:  # the platform's own come first and cannot be replaced
            log.error("crm_adapter_refused", name=point.name, reason="the name is taken")
            continue
        try:
            adapter = point.load()
            if not (isinstance(adapter, type) and issubclass(adapter, CRMAdapter)):
                raise TypeError(f"{point.value} is no subclass of CRMAdapter")
            missing = {name for name in ("name", "title") if not hasattr(adapter, name)}
            if missing := missing | adapter.__abstractmethods__:
                raise TypeError(f"{point.value} does not define {', '.join(sorted(missing))}")
            if adapter.name != point.name:
                raise TypeError(f"{point.value} calls itself {adapter.name}")
            adapters[point.name] = adapter
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            reasons[point.name] = f"{type(error).__name__}: {error}"
            log.error("crm_adapter_broken", name=point.name, reason=reasons[point.name])
    return Registry(adapters, reasons)


def open_adapter(
    name: str, settings: Mapping[str, Any], credentials: Mapping[str, Any]
) -> CRMAdapter:
    """Open an adapter with its settings and credentials. Raises InvalidInput."""
    return registry().get(name)(settings, credentials)
