"""The figures of a checkout that have a ceiling."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from shape.modules import Module, Place, python_files, read_module
from shape.names import is_participle, is_private, is_pronoun
from shape.reach import ROOTS, read_reach
from shape.touches import read_touches

PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
_PARTS = ("notify/feed", *PACKAGES)  # the first one that a path begins with is its part


@dataclass(frozen=True)
class Figure:
    """A number that may only fall. A share is in percent, with one decimal."""

    name: str
    value: Decimal
    advice: str  # how to lower it
    places: Collection[Place] = ()


def read_product(root: Path) -> list[Module]:
    return [read_module(root, path) for path in python_files(root, *PACKAGES)]


def figures(root: Path, modules: list[Module]) -> list[Figure]:
    """The figures in the order of the file; `modules` are those of `read_product`."""
    return [
        *_sizes(modules), *_reaches(modules), *_shares(modules), *_names(modules),
        *_touches(root),
    ]  # fmt: skip


def _sizes(modules: list[Module]) -> Iterator[Figure]:
    parts: dict[str, list[Module]] = {part: [] for part in sorted(_PARTS)}
    for module in modules:
        part = next(part for part in _PARTS if module.path.startswith(f"{part}/"))
        parts[part].append(module)
    for part, members in parts.items():
        lines = sum(module.lines for module in members)
        yield Figure(f"lines of {part}", Decimal(lines), "Take lines out of this package.")
    for part, members in parts.items():
        count = sum(not module.path.endswith("/__init__.py") for module in members)
        advice = "Make a module part of its only importer."
        yield Figure(f"modules of {part}", Decimal(count), advice)


def _reaches(modules: list[Module]) -> Iterator[Figure]:
    for message, roots in ROOTS.items():
        lines, places = read_reach(modules, roots)
        advice = "Import what is for types only below TYPE_CHECKING; part what the console needs."
        yield Figure(f"reach of {message}", Decimal(lines), advice, places)


def _shares(modules: list[Module]) -> Iterator[Figure]:
    lines = sum(module.lines for module in modules)
    import_lines = sum(module.import_lines for module in modules)
    functions = [function for module in modules for function in module.functions]
    private = [function for function in functions if is_private(function.name)]
    helpers = [helper for module in modules for helper in module.helpers_of_one_place]
    yield Figure(
        "imports, % of lines", _percent(import_lines, lines),
        "Merge modules that import each other's names.",
    )  # fmt: skip
    yield Figure(
        "private functions, % of functions", _percent(len(private), len(functions)),
        "Write steps that are read one after another as one function.", private,
    )  # fmt: skip
    yield Figure(
        "helpers called in one place, % of functions", _percent(len(helpers), len(functions)),
        "Put the lines of the helper where it is called.", helpers,
    )  # fmt: skip


def _names(modules: list[Module]) -> Iterator[Figure]:
    functions = [function for module in modules for function in module.functions]
    bindings = [binding for module in modules for binding in module.bindings]
    yield _counted(
        "participles and adverbs as variables",
        [binding for binding in bindings if is_participle(binding.name)],
        "Name it by a noun with what it holds: due_ids.",
    )
    yield _counted(
        "participles and adverbs as functions",
        [function for function in functions if is_participle(function.name)],
        "Name it by a verb and its object: claim_orders.",
    )
    yield _counted(
        "pronouns as variables",
        [binding for binding in bindings if is_pronoun(binding.name)],
        "Name the thing that it stands for.",
    )


def _touches(root: Path) -> Iterator[Figure]:
    touches = read_touches(root)
    advice = "Test what a public function does."
    yield _counted("tests that touch a private attribute", touches.functions_with_private, advice)
    yield _counted("private attributes touched in tests", touches.private, advice)
    advice = "Bring the case about from outside: by a setting, an argument, a real server."
    yield _counted("tests that replace an attribute", touches.functions_with_replaced, advice)
    yield _counted("attributes replaced in tests", touches.replaced, advice)
    yield _counted("private attributes replaced in tests", touches.replaced_private, advice)


def _counted(name: str, places: Collection[Place], advice: str) -> Figure:
    return Figure(name, Decimal(len(places)), advice, places)


def _percent(part: int, whole: int) -> Decimal:
    return Decimal(f"{100 * part / max(whole, 1):.1f}")
