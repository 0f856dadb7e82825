"""`docs/configuration.md`: every environment variable, as the code reads it.

The source is read, not run: a call of `env` has the name, kind, default and bounds, and
the comment above it has the meaning. A line `By default: …` there replaces a default that is not
written as a constant.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings

from msgplatform.core import flows

PLATFORM = Path("msgplatform/settings.py")
# Readers that take no name: the variable that they read.
_UNNAMED = {"public_url": "PUBLIC_URL", "state_dir": "STATE_DIR"}
_VALUES = {
    "flag": "yes or no",
    "database": "URL",
    "url": "URL",
    "trace_url": "URL",
    "public_url": "URL",
    "own_url": "URL",
    "redis_url": "URL",
    "headers": "list",
    "host": "address",
    "existing_file": "path",
    "state_dir": "path",
    "networks": "networks",
    "words": "list",
    "words_of": "list",
    "mapping": "list",
    "modules": "list",
    "time_zone": "name",
    "choice": "name",
    "cell": "number/cells",
    "urls_by_cell": "list",
    "text": "text",
    "secret": "text",
}
# Kinds that may stand in a file named by NAME_FILE.
_IN_FILES = {"secret", "database", "headers", "url", "redis_url", "public_url", "own_url"}
_UNITS = ("SECONDS", "MINUTES", "HOURS", "DAYS")
_SECTION = re.compile(r"# -- (.+?) -+$")


@dataclass(frozen=True)
class Variable:
    """One line of the page; `section` is the heading inside its file, '' at its beginning."""

    name: str
    section: str
    values: str
    default: str
    meaning: str
    may_be_file: bool


def page() -> str:
    """The whole page, in Markdown."""
    features = [Path(name.replace(".", "/")) / "settings.py" for name in settings.FEATURES]
    files = [PLATFORM, *(path for path in features if (settings.BASE_DIR / path).exists())]
    variables = [variable for path in files for variable in read(settings.BASE_DIR / path)]
    # A name that a later file reads too, such as STATE_DIR, is the earlier one's.
    by_name: dict[str, Variable] = {}
    for variable in variables:
        by_name.setdefault(variable.name, variable)
    platform = list(by_name.values())
    parts = [_HEAD, _tables("The platform", platform)]
    for name, path in _files_of_flows():
        parts.append(_tables(name, read(settings.BASE_DIR / path)))
    return "\n".join(parts)


_HEAD = """# Configuration

For whoever runs the platform: every environment variable, written from the code by `make docs`; do
not edit. What to set for production, and in which order, is in [install.md](install.md).

- A wrong value stops the programs with a sentence that says how to correct it; `manage.py check`
  and `manage.py doctor` say the same at any time.
- An empty variable counts as unset.
- A variable marked with *file* may be given as `NAME_FILE`, the path of a file that holds the
  value: so no secret stands in the environment of a process.
- `make demo` uses none of your variables that name a database, a Redis server or a network.
"""


def read(path: Path) -> list[Variable]:
    """The variables that a file reads, in its order, each once. Raises ValueError for one without
    a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    variables: dict[str, Variable] = {}
    for call, statement in _calls(_tree(path)):
        name = _UNNAMED.get(_kind(call)) or str(ast.literal_eval(call.args[0]))
        if name not in variables:
            comment = _comment(lines, call.lineno) or _comment(lines, statement.lineno)
            if not comment:
                raise ValueError(f"{path}:{call.lineno}: {name} has no comment that explains it")
            variables[name] = _variable(name, call, comment, _section(lines, call.lineno))
    return list(variables.values())


def _files_of_flows() -> Iterator[tuple[str, Path]]:
    """Heading and file for every module of a flow that reads variables."""
    labels = {flow.permission.partition(".")[0]: str(flow.title) for flow in flows.all()}
    titles = {apps.get_app_config(label).name: title for label, title in labels.items()}
    folders = {Path(package.replace(".", "/")): titles[package] for package in settings.FLOWS}
    for folder, title in folders.items():
        settings_file = folder / "settings.py"
        yield title, settings_file
        for path in sorted((settings.BASE_DIR / folder).rglob("*.py")):
            relative = path.relative_to(settings.BASE_DIR)
            owners = [one for one in folders if relative.is_relative_to(one)]
            owner = max(owners, key=lambda one: len(one.parts))
            if owner == folder and relative != settings_file and _calls(_tree(path)):
                yield f"{title}: `{path.stem}`", relative


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _calls(tree: ast.Module) -> list[tuple[ast.Call, ast.stmt]]:
    """The calls of `env` that read a variable, in their order, each with its statement."""
    statements = {
        node: statement
        for statement in ast.walk(tree)
        if isinstance(statement, ast.stmt)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and _is_reader(node.func)
    }  # a statement inside another is walked after it
    return sorted(statements.items(), key=lambda item: (item[0].lineno, item[0].col_offset))


def _is_reader(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "env"
        and function.attr in {*_VALUES, "number", "integer"}
    )


def _kind(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - `_is_reader` has seen to it
    return call.func.attr


def _comment(lines: list[str], number: int) -> list[str]:
    """The lines of the comment right above this line, counted from 1."""
    above: list[str] = []
    for line in reversed(lines[: number - 1]):
        text = line.strip()
        if not text.startswith("# ") or _SECTION.match(text):
            break
        above.insert(0, text.removeprefix("# "))
    return above


def _section(lines: list[str], number: int) -> str:
    titles = [match[1] for line in lines[:number] if (match := _SECTION.match(line))]
    return titles[-1] if titles else ""


def _variable(name: str, call: ast.Call, comment: list[str], section: str) -> Variable:
    defaults = [
        line.removeprefix("By default: ") for line in comment if line.startswith("By default: ")
    ]
    meaning = " ".join(line for line in comment if not line.startswith("By default: "))
    kind = _kind(call)
    default = _constant(call.args[1]) if not defaults and len(call.args) > 1 else ""
    return Variable(
        name,
        section,
        _bounds(name, call) if kind in {"number", "integer"} else _VALUES[kind],
        defaults[0] if defaults else f"`{_text_of(default)}`" if default != "" else "none",
        meaning,
        kind in _IN_FILES,
    )


def _bounds(name: str, call: ast.Call) -> str:
    low, high = (_constant(node) for node in call.args[2:4])
    unit = next((unit.lower() for unit in _UNITS if name.endswith(unit)), "")
    return f"{_text_of(low)} to {_text_of(high)} {unit}".strip()


def _constant(node: ast.expr) -> Any:
    """A constant, or a product of constants such as 30 * 86_400. Raises ValueError for others."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _constant(node.left) * _constant(node.right)
    return ast.literal_eval(node)


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _tables(title: str, variables: list[Variable]) -> str:
    lines = [f"## {title}"]
    section = None
    for one in variables:
        if one.section != section:
            section = one.section
            if section:
                lines += ["", f"### {section[0].upper()}{section[1:]}"]
            lines += ["", "| variable | meaning | values | default |", "|---|---|---|---|"]
        name = f"`{one.name}`" + (" *file*" if one.may_be_file else "")
        cells = (name, one.meaning, one.values, one.default)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
