"""The protocol imports a few modules of the standard library, none of which does I/O."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "gateway" / "sgip"
ALLOWED = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "itertools",
    "operator",
    "struct",
    "typing",
}


def test_nothing_else_is_imported() -> None:
    found: set[str] = set()
    modules = list(PACKAGE.rglob("*.py"))
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.ImportFrom):
                depth = len(module.relative_to(PACKAGE).parts)
                assert node.level <= depth, f"{module.name} leaves the package"
    assert found <= ALLOWED
    assert len(modules) > 15


def test_the_clock_is_never_asked() -> None:
    for module in PACKAGE.rglob("*.py"):
        text = module.read_text(encoding="utf-8")
        assert ".now(" not in text, module.name
        assert ".today()" not in text, module.name
        assert ".utcnow" not in text, module.name
