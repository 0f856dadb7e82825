"""The flows that are installed."""

from __future__ import annotations

from msgplatform.core.connections import WORK, RedisRole
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.programs import BULK

_registry: dict[str, Flow] = {}


def register(flow: Flow) -> None:
    """Add a flow; the same name twice is a programming error."""
    if flow.name in _registry:
        raise ValueError(f"a flow named {flow.name!r} is registered already")
    _registry[flow.name] = flow


def all() -> list[Flow]:
    """Every registered flow, in the order of INSTALLED_APPS."""
    return list(_registry.values())


def roles() -> set[str]:
    """The roles of the programs that should run, as their heartbeats name them."""
    programs = [BULK, *(daemon for flow in all() for daemon in flow.daemons)]
    return {program.command.removeprefix("run_") for program in programs}


def redis_roles() -> list[RedisRole]:
    """Every Redis that the platform uses: the work Redis, then those of flows."""
    return [WORK, *(role for flow in all() for role in flow.redis)]


def get(name: str) -> Flow | None:
    """The flow of this name, or None."""
    return _registry.get(name)
