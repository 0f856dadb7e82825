"""Adapters by name: the platform's own, and others that installed packages bring.

A package names its adapter in the entry point group `msgplatform.crm_adapters`. One that cannot be
loaded is listed with its reason, and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

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
    EntryPoint("tryton", "crmsync.adapters.tryton.adapter:TrytonAdapter", GROUP),
)

log = logging.get(__name__)


@dataclass(frozen=True)
class Registry:
    """`adapters` by name; `broken` are those that could not be loaded, with the reason."""

    adapters: Mapping[str, type[CRMAdapter]] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> type[CRMAdapter]:
        """Raises InvalidInput for a name that is unknown or broken."""
        if name in self.adapters:
            return self.adapters[name]
        if name in self.broken:
            raise InvalidInput(
                _("The adapter %(name)s cannot be used: %(reason)s")
                % {"name": name, "reason": self.broken[name]},
                "adapter",
            )
        names = ", ".join(sorted(self.adapters))
        raise InvalidInput(
            _("There is no adapter %(name)s. Known are: %(known)s.")
            % {"name": name, "known": names},
            "adapter",
        )


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Read once for each process: an installed package is seen after a restart."""
    adapters: dict[str, type[CRMAdapter]] = {}
    reasons: dict[str, str] = {}
    for point in (*_OWN, *entry_points(group=GROUP)):
        if point.name in adapters:  # its own come first, and nobody replaces them
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
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code
            reasons[point.name] = f"{type(error).__name__}: {error}"
            log.error("crm_adapter_broken", name=point.name, reason=reasons[point.name])
    return Registry(adapters, reasons)


def open_adapter(
    name: str, settings: Mapping[str, Any], credentials: Mapping[str, Any]
) -> CRMAdapter:
    """An adapter that is ready to be used. Raises InvalidInput."""
    return registry().get(name)(settings, credentials)
