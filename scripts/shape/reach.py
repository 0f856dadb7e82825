"""The reach of a message: the modules that the programs on its way import, and these in turn.

Imports on the level of a module count, with the packages around it; those below
`if TYPE_CHECKING:` and in functions do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from shape.modules import FUNCTIONS, Module, Place

# A message → the first modules of its intake and of its programs, as its walk in
# docs/architecture.md names them.
ROOTS = {
    "an event": (
        "notify.intake.intake", "notify.maker.maker", "notify.sender.sender",
        "notify.marker.marker", "notify.archive.archiver",
    ),
    "a post": (
        "notify.feed.intake.posts", "notify.feed.dispatcher.dispatcher",
        "notify.feed.cleaner.cleaner",
    ),
}  # fmt: skip


def read_reach(modules: Iterable[Module], roots: Iterable[str]) -> tuple[int, list[Place]]:
    """The lines of all modules that these reach, and the modules."""
    by_name = {_dotted_name(module.path): module for module in modules}
    todo, reached = list(roots), set[str]()
    while todo:
        name = todo.pop()
        if name in by_name and name not in reached:
            reached.add(name)
            todo += _imported_names(by_name[name])
    places = [Place(by_name[name].path, 1, name) for name in reached]
    return sum(by_name[name].lines for name in reached), places


def _dotted_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _imported_names(module: Module) -> Iterator[str]:
    """The dotted names that a module imports, with those of the packages around them; some are of
    classes and functions, which are no modules."""
    stack: list[ast.AST] = [ast.parse(module.source)]
    while stack:
        node = stack.pop()
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack += node.orelse
        elif not isinstance(node, FUNCTIONS):
            stack += ast.iter_child_nodes(node)
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))
