"""One module of the product, read once."""

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shape.names import is_private

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*FUNCTIONS, ast.Lambda)


@dataclass(frozen=True, order=True)
class Place:
    """A name, and where it stands."""

    path: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}"


@dataclass
class Module:
    """The parts of a module that the figures are made of."""

    path: str  # from the checkout's folder
    source: str
    import_lines: int = 0
    functions: list[Place] = field(default_factory=list)
    function_lengths: list[int] = field(default_factory=list)  # lines, as `functions`
    # Every local and argument once for each function that binds it.
    bindings: list[Place] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)  # how often each name is used
    calls: Counter[str] = field(default_factory=Counter)  # how often it is called directly

    @property
    def lines(self) -> int:
        return self.source.count("\n")

    @property
    def helpers_of_one_place(self) -> list[Place]:
        """Private functions and methods that the module names once, in a call."""
        return [
            function
            for function in self.functions
            if is_private(function.name)
            and self.names[function.name] == self.calls[function.name] == 1
        ]


def python_files(root: Path, *folders: str) -> Iterator[str]:
    """Tracked Python files below these folders, without migrations."""
    command = ["git", "-C", str(root), "ls-files", "--", *folders]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    for path in listing.stdout.splitlines():
        if path.endswith(".py") and "/migrations/" not in path and (root / path).exists():
            yield path


def scoped_nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Every node with the innermost function around it; a function is outside of itself."""
    stack: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    while stack:
        node, function = stack.pop()
        yield node, function
        scope = node if isinstance(node, _SCOPES) else function
        stack += [(child, scope) for child in ast.iter_child_nodes(node)]


def read_module(root: Path, path: str) -> Module:
    module = Module(path, (root / path).read_text(encoding="utf-8"))
    first_lines: dict[tuple[ast.AST, str], int] = {}  # of a function's local or argument
    for node, function in scoped_nodes(ast.parse(module.source)):
        if isinstance(node, ast.Name):
            module.names[node.id] += 1
            binding = node.id if isinstance(node.ctx, ast.Store) else ""
        else:
            binding = node.arg if isinstance(node, ast.arg) else ""
        if binding and function is not None:
            line = node.lineno  # type: ignore[attr-defined]  # a Name or an argument
            key = (function, binding)
            first_lines[key] = min(line, first_lines.get(key, line))
        if isinstance(node, ast.Attribute):
            module.names[node.attr] += 1
        elif isinstance(node, ast.Call):
            module.calls[getattr(node.func, "attr", getattr(node.func, "id", ""))] += 1
        elif isinstance(node, FUNCTIONS):
            module.functions.append(Place(path, node.lineno, node.name))
            module.function_lengths.append(_length(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module.import_lines += _length(node)
    module.bindings = [Place(path, line, name) for (_, name), line in first_lines.items()]
    return module


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
