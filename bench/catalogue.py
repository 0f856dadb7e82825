"""Which benches there are: the modules of this package with a `NAME`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import bench


@lru_cache(maxsize=1)
def _all() -> dict[str, ModuleType]:
    names = [found.name for found in pkgutil.iter_modules(bench.__path__)]
    modules = [importlib.import_module(f"bench.{n}") for n in names if not n.startswith("__")]
    found = [module for module in modules if hasattr(module, "NAME")]
    return {module.NAME: module for module in sorted(found, key=lambda m: (getattr(m, "ORDER", 1000), m.NAME))}


def names() -> Sequence[str]:
    """In the order in which a message meets what they measure."""
    return list(_all())


def get(name: str) -> ModuleType | None:
    """The bench of this name; needs Django."""
    return _all().get(name)
