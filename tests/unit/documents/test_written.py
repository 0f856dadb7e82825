"""Pages that are written from the code are up to date, and what is in the code is in the pages."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from scripts.reference import bulk_actions, configuration, data_model, metrics, runbook

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
_READ = re.compile(r"\benv\.[a-z_]+\(\s*\"([A-Z_]+)\"")


def sources() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [bulk_actions, configuration, data_model, metrics], ids=lambda page: page.__name__
)
def test_it_is_up_to_date(page: ModuleType) -> None:
    name = page.__name__.rpartition(".")[2].replace("_", "-")
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert written == page.page(), "run `make docs` and commit what it writes"


@pytest.mark.parametrize(("name", "text"), runbook.pages().items())
def test_the_runbook_is_up_to_date(name: str, text: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == text, "run `make docs` and commit what it writes"


def test_every_variable_that_is_read_is_in_the_configuration() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    read = {name for _path, text in sources() for name in _READ.findall(text)}
    assert len(read) > 60
    assert {name for name in read if f"| `{name}`" not in page} == set()


def test_a_variable_without_a_comment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.py"
    path.write_text('# How long.\n# By default: for ever\nA = env.integer("A_DAYS", 2 * 5, 1, 9)\n')
    (found,) = configuration.read(path)
    assert (found.values, found.default, found.meaning) == ("1 to 9 days", "for ever", "How long.")
    path.write_text('import os\nA = env.flag("A", True)\n')
    with pytest.raises(ValueError, match="A has no comment"):
        configuration.read(path)
