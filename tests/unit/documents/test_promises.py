"""Each promise names a test that exists, and each line that closes a weakness is in its file."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "promises.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
_LINE = re.compile(r"`([\w/]+\.py)`: `([^`]+)`")


def rows(text: str) -> list[str]:
    """The rows of the tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if not re.match(r"\|(-|.*\| shown by \|$)", line)]


def names(statements: Iterable[ast.stmt], prefix: str = "") -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            yield prefix + statement.name
        elif isinstance(statement, ast.ClassDef):
            yield from names(statement.body, f"{prefix}{statement.name}::")


def faults(text: str) -> list[str]:
    """What the rows of a page name, and is not there."""
    wrong = [f"without a test: {row}" for row in rows(text) if not _TEST.search(row)]
    for file, name in _TEST.findall(text):
        if name not in names(ast.parse((ROOT / file).read_text()).body):
            wrong.append(f"{file} has no {name}")
    wrong += [
        f"{file} has no line {line}"
        for file, line in _LINE.findall(text)
        if line not in (ROOT / file).read_text()
    ]
    return wrong


def test_what_is_promised_is_tested() -> None:
    assert len(rows(PAGE)) > 20
    assert faults(PAGE) == []


def test_a_name_that_is_gone_is_a_fault() -> None:
    here = "tests/unit/documents/test_promises.py"
    assert faults(f"| a | b | `{here}::test_nothing` |\n| c | d | e |") == [
        "without a test: | c | d | e |",
        f"{here} has no test_nothing",
    ]
    assert faults("`msgplatform/env.py`: `no such line`") == [
        "msgplatform/env.py has no line no such line"
    ]
