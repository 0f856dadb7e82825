"""The contract that a flow fills in (`contract`), and the registry of flows.

Console, `up`, `demo`, `doctor`, `/metrics`, `run_bulk`, the queues and the URL configuration go
through the registry, so a new flow is a new folder and its name in FLOWS. Each app's `flow.py`
holds a `Flow`, which `AppConfig.ready()` registers; the platform's settings read the app's
`settings.py`, if any. This module imports no part: a program loads the parts that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgplatform.core.flows.contract import Flow

_registry: dict[str, Flow] = {}


def register(flow: Flow) -> None:
    """Add a flow; the same name twice is a programming error."""
    if flow.name in _registry:
        raise ValueError(f"a flow named {flow.name!r} is registered already")
    _registry[flow.name] = flow


def all() -> list[Flow]:
    """Every registered flow, in the order of INSTALLED_APPS."""
    return list(_registry.values())


def get(name: str) -> Flow | None:
    """The flow of this name, or None."""
    return _registry.get(name)


def has_only_copies(queue: str) -> bool:
    """True if the orders in this queue cannot be made again from the database."""
    return any(queue in flow.only_copies for flow in all())
