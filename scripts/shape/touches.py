"""The places at which tests touch what is private, or replace an attribute."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shape.modules import FUNCTIONS, Place, python_files
from shape.names import is_private

# Documented names of Django, of named tuples and of `os`.
_DOCUMENTED = frozenset({
    "_meta", "_base_manager", "_default_manager", "_asdict", "_fields", "_make", "_replace",
    "_exit",
})  # fmt: skip
_TOUCH = re.compile(r"\._[a-zA-Z]|setattr|mock")  # a file without it is not parsed
_MOCK_METHODS = frozenset({"patch", "object", "dict", "multiple"})
_MOCKS = frozenset({
    f"{owner}patch{method}"
    for owner in ("", "mock.", "unittest.mock.")
    for method in ("", ".object", ".dict", ".multiple")
})  # fmt: skip


@dataclass
class Touches:
    """Places in all tests, and the functions with such places."""

    private: list[Place] = field(default_factory=list)
    functions_with_private: set[Place] = field(default_factory=set)
    replaced: list[Place] = field(default_factory=list)
    functions_with_replaced: set[Place] = field(default_factory=set)

    @property
    def replaced_private(self) -> list[Place]:
        return [place for place in self.replaced if is_private(place.name)]


def read_touches(root: Path) -> Touches:
    touches = Touches()
    for path in python_files(root, "tests"):
        source = (root / path).read_text(encoding="utf-8")
        if not _TOUCH.search(source):
            continue
        own_names = set(re.findall(r"\bdef (\w+)", source))
        for node, function in _outermost(ast.parse(source)):
            if isinstance(node, ast.Attribute):
                if _is_private_of_another(node) and node.attr not in own_names:
                    touches.private.append(Place(path, node.lineno, node.attr))
                    touches.functions_with_private |= _places(path, function)
            elif isinstance(node, ast.Call) and _replaces(node.func):
                touches.replaced.append(Place(path, node.lineno, _target(node)))
                touches.functions_with_replaced |= _places(path, function)
    return touches


def _outermost(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Every node with the outermost function around it: a function in a test is part of it."""
    stack: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    while stack:
        node, function = stack.pop()
        yield node, function
        if function is None and isinstance(node, FUNCTIONS):
            function = node
        stack += [(child, function) for child in ast.iter_child_nodes(node)]


def _places(path: str, function: ast.AST | None) -> set[Place]:
    if isinstance(function, FUNCTIONS):
        return {Place(path, function.lineno, function.name)}
    return set()


def _is_private_of_another(node: ast.Attribute) -> bool:
    """True for `something._name`, if something is not the object or the class itself."""
    owner = node.value
    if isinstance(owner, ast.Call):
        owner = owner.func  # super()
    is_own = isinstance(owner, ast.Name) and owner.id in {"self", "cls", "super"}
    return is_private(node.attr) and node.attr not in _DOCUMENTED and not is_own


def _replaces(function: ast.expr) -> bool:
    """True for `monkeypatch.setattr` under any name, and for the ways of `unittest.mock`."""
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name == "setattr":
        return isinstance(function, ast.Attribute)
    return name in _MOCK_METHODS and ast.unparse(function) in _MOCKS


def _target(call: ast.Call) -> str:
    """The name of the attribute that is replaced; '' if it is computed."""
    for argument in call.args[:2][::-1]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value.rpartition(".")[2]
    return ""
