"""`scripts/shape.py --check`: a figure above its ceiling fails and names the place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CEILINGS = "scripts/shape_ceilings.txt"
MODULE = "gateway/orders.py"
TEST = "tests/test_orders.py"
FILES = {
    "crmsync/__init__.py": "",
    "msgplatform/__init__.py": "",
    "notify/feed/posts.py": "MAX_POSTS = 10\n",
    "notify/maker/maker.py": "",
    MODULE: """\
from pathlib import Path

def claim_orders(path):
    due_ids = path.read_text().split()
    return _known_ids(due_ids)

def _known_ids(due_ids):
    return due_ids[:10]

def count_orders(path):
    return len(_known_ids(path.read_text().split()))
""",
    TEST: """\
def test_orders():
    assert True
""",
}


def run_shape(folder: Path, action: str = "--check") -> subprocess.CompletedProcess[str]:
    """The script with the standard library only (-S), as a hook without the environment runs it."""
    command = [sys.executable, "-S", str(ROOT / "scripts/shape.py"), action, str(folder)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def change_line(checkout: Path, before: str, after: str) -> None:
    file = checkout / CEILINGS
    (line,) = [line for line in file.read_text().splitlines() if line.startswith(before)]
    file.write_text(file.read_text().replace(line, after))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout whose figures are at their ceilings."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / CEILINGS).parent.mkdir()
    text = (ROOT / CEILINGS).read_text()
    high = re.sub(r"^([^#].*?) +[\d.]+ +[\d.]+ +[\d.]+$", r"\1  999  999  0", text, flags=re.M)
    (tmp_path / CEILINGS).write_text(re.sub(r"\n  \+.*", "", high))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    assert run_shape(tmp_path, "--lower").returncode == 0
    return tmp_path


def test_a_checkout_at_its_ceilings_passes(checkout: Path) -> None:
    result = run_shape(checkout)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("path", "text", "figure", "place"),
    [
        (MODULE, "LAST = 1\n", "lines of gateway: 12 is above the ceiling 11.", ""),
        (
            MODULE, "def _narrowed(orders): return orders\n",
            "participles and adverbs as functions: 1 is above the ceiling 0.",
            f"{MODULE}:12: _narrowed",
        ),
        (
            MODULE, "def resend(wanted): return 1\n",
            "participles and adverbs as variables: 1 is above the ceiling 0.",
            f"{MODULE}:12: wanted",
        ),
        (
            MODULE, "def resend(ids): return [each for each in ids]\n",
            "pronouns as variables: 1 is above the ceiling 0.",
            f"{MODULE}:12: each",
        ),
        (
            MODULE, "def _cut(ids): return ids\ndef send(ids): return _cut(ids)\n",
            "helpers called in one place, % of functions: 20.0 is above the ceiling 0.0.",
            f"{MODULE}:12: _cut",
        ),
        (
            MODULE, "from os import (\n    path,\n    sep,\n)\n",
            "imports, % of lines: 31.2 is above the ceiling 8.3.",
            "",
        ),
        (
            "notify/maker/maker.py",
            "from typing import TYPE_CHECKING\n"
            "from gateway import orders\n"
            "if TYPE_CHECKING:\n    from notify.feed import posts\n",
            "reach of an event: 15 is above the ceiling 0.",
            f"{MODULE}:1: gateway.orders",
        ),
        (
            TEST, "def test_lease(sender): assert sender._lease\n",
            "private attributes touched in tests: 1 is above the ceiling 0.",
            f"{TEST}:3: _lease",
        ),
        (
            TEST, "def test_lease(monkeypatch, sender): monkeypatch.setattr(sender, '_lease', 1)\n",
            "private attributes replaced in tests: 1 is above the ceiling 0.",
            f"{TEST}:3: _lease",
        ),
        (
            TEST, "from unittest import mock\nmock.patch('gateway.orders.claim')\n",
            "attributes replaced in tests: 1 is above the ceiling 0.",
            f"{TEST}:4: claim",
        ),
    ],
    ids=[
        "line", "participle-function", "participle-argument", "pronoun", "helper", "imports",
        "reach", "private-attribute", "private-replaced", "mock",
    ],
)  # fmt: skip
def test_a_figure_above_its_ceiling_fails(
    checkout: Path, path: str, text: str, figure: str, place: str
) -> None:
    with (checkout / path).open("a") as file:
        file.write(text)
    result = run_shape(checkout)
    assert result.returncode == 1
    lines = [line.strip() for line in result.stderr.splitlines()]
    assert [line for line in lines if line.startswith(figure)]
    assert not place or place in lines


def test_a_further_module_fails(checkout: Path) -> None:
    (checkout / "notify/feed/pages.py").write_text("")
    subprocess.run(["git", "-C", checkout, "add", "."], check=True)
    result = run_shape(checkout)
    assert result.returncode == 1
    assert "modules of notify/feed: 2 is above the ceiling 1." in result.stderr


def test_names_that_a_test_defines_itself_are_no_touch(checkout: Path) -> None:
    (checkout / TEST).write_text(
        "class Sender(Parent):\n"
        "    def _lease(self): return super()._lease() + self._seconds\n"
        "def test_lease(): assert Sender()._lease() and Sender._meta\n"
    )
    assert run_shape(checkout).returncode == 0


def test_lower_figures_are_written_and_comments_stay(checkout: Path) -> None:
    (checkout / MODULE).write_text("MAX_ORDERS = 10\n")
    result = run_shape(checkout)
    assert result.returncode == 0
    assert "lines of gateway: 11 could be lowered to 1" in result.stdout
    comments = [line for line in (ROOT / CEILINGS).read_text().splitlines() if line[:1] == "#"]
    assert run_shape(checkout, "--lower").stdout.startswith("lines of gateway: 11 → 1\n")
    assert run_shape(checkout).stdout == ""
    kept = [line for line in (checkout / CEILINGS).read_text().splitlines() if line[:1] == "#"]
    assert kept == comments


def test_a_raise_needs_its_reason(checkout: Path) -> None:
    with (checkout / MODULE).open("a") as file:
        file.write("LAST = 1\n")
    change_line(checkout, "lines of gateway ", "lines of gateway   12   11   0")
    result = run_shape(checkout)
    assert result.returncode == 1
    assert "the ceiling of `lines of gateway` is 12, and start - lowered + raises is 11" in (
        result.stderr
    )
    (number,) = [
        number
        for number, line in enumerate((checkout / CEILINGS).read_text().splitlines(), 1)
        if line.startswith("lines of gateway ")
    ]
    assert f"{CEILINGS}:{number}: " in result.stderr

    change_line(checkout, "lines of gateway ", "lines of gateway   12   11   0\n  +1")
    result = run_shape(checkout)
    assert result.returncode == 1
    assert f"{CEILINGS}:{number + 1}: write what the raise is for" in result.stderr

    change_line(checkout, "  +1", "  +1  the last order is known")
    result = run_shape(checkout)
    assert (result.returncode, result.stderr) == (0, "")

    (checkout / MODULE).write_text(FILES[MODULE])
    assert "lines of gateway: 12 → 11" in run_shape(checkout, "--lower").stdout
    assert run_shape(checkout).returncode == 0
    assert "  +1  the last order is known" in (checkout / CEILINGS).read_text()


@pytest.mark.parametrize("line", ["", "pronouns and adverbs   1   1   0", "pronouns as variables"])
def test_a_figure_without_its_line_fails(checkout: Path, line: str) -> None:
    change_line(checkout, "pronouns as variables", line)
    result = run_shape(checkout)
    assert result.returncode == 1
    assert result.stderr.startswith(f"{CEILINGS}:")
