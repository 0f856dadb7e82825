"""Which benches there are: the modules of `bench` with a `NAME`.

Such a module also has `ORDER` (its place among the others), `ABOUT` (a paragraph for
the document) and `sides()` (subclasses of `measure.Side`, ours first). It may have `UNIT`,
and `facts(ground)`, which is called after all runs: what the result says beside the rates. With
facts that deserve a table, it has `details(result)`: lines of Markdown for the document. There is
no ratio of rates with `IS_OPEN` (its times are to be compared), and none of the sides whose names
are in `OTHER_WORK`. `REASONS` says by side why ours is behind it, or why its figure is not good.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import bench
from bench.harness.measure import Side

# A soak has no sides and a command of its own.
_NO_BENCHES = ("harness", "management", "references", "soak")


@lru_cache(maxsize=1)
def _all() -> dict[str, ModuleType]:
    folders = [folder.name for folder in pkgutil.iter_modules(bench.__path__) if folder.ispkg]
    packages = [importlib.import_module(f"bench.{f}") for f in folders if f not in _NO_BENCHES]
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in packages
        for found in pkgutil.iter_modules(package.__path__)
    ]
    found = [module for module in modules if hasattr(module, "NAME")]
    found.sort(key=lambda module: (module.ORDER, module.NAME))
    return {module.NAME: module for module in found}


def names() -> Sequence[str]:
    """All benches, in the order in which a message meets what they measure."""
    return list(_all())


def get(name: str) -> ModuleType | None:
    """The bench of this name; needs Django."""
    return _all().get(name)


def sides(name: str, against: Sequence[str] = ()) -> Sequence[type[Side]]:
    """The sides of a bench, ours first; with `against` only ours and those of these names. Raises
    LookupError when there is no such bench."""
    ours, *others = _all()[name].sides()
    return [ours, *(side for side in others if not against or side.name in against)]
