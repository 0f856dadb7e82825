"""The lock says what pyproject.toml says, and everything that follows from it."""

import json
import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETS: dict[str, list[Requirement]] = {
    name: list(map(Requirement, lines))
    for name, lines in {
        "platform": _PROJECT["project"]["dependencies"],
        **_PROJECT["project"]["optional-dependencies"],
        **_PROJECT["dependency-groups"],
    }.items()
}
INSTALLED = ("platform", "mysql", "dev")


class Locked(NamedTuple):
    version: str
    text: str
    sets: frozenset[str]


def locked() -> dict[str, list[Locked]]:
    """Entries by package; there are several where Pythons need different versions."""
    entries: dict[str, list[Locked]] = {}
    text = (ROOT / "requirements.lock").read_text()
    for match in re.finditer(r"^(\w\S*)==(\S+).*\n(?:    --.*\n)+    # (.*)\n", text, re.M):
        entry = Locked(match[2], match[0], frozenset(match[3].split()))
        entries.setdefault(match[1], []).append(entry)
    return entries


@pytest.mark.parametrize("name", SETS)
def test_the_lock_has_what_the_project_asks_for(name: str) -> None:
    """When this fails, run `make lock`."""
    entries = locked()
    for requirement in SETS[name]:
        for entry in entries[canonicalize_name(requirement.name)]:
            assert name in entry.sets
            assert requirement.specifier.contains(entry.version), requirement


def test_each_package_has_a_set_hashes_and_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = [entry for some in locked().values() for entry in some]
    assert len(entries) == len(re.findall(r"^\w\S*==", text, re.M))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry.text) for entry in entries)
    assert {name for entry in entries for name in entry.sets} == SETS.keys()
    assert "://" not in text


def test_only_mysqlclient_is_built() -> None:
    """For pip the last word about a package counts."""
    for file in ("requirements.lock", "requirements.txt"):
        options = re.findall(r"^--.*", (ROOT / file).read_text(), re.M)
        assert options == ["--only-binary :all:", "--no-binary mysqlclient"]
    assert "platform" not in locked()["mysqlclient"][0].sets


def test_requirements_txt_is_the_platform_of_the_lock() -> None:
    exported = (ROOT / "requirements.txt").read_text()
    for entries in locked().values():
        for entry in entries:
            lines = entry.text[: entry.text.rindex("    # ")]
            assert (lines in exported) == bool(entry.sets & {"platform", "mysql"})


def needs(asked: Requirement) -> list[Requirement]:
    """What an installed package needs on this machine, with the extras that are asked for."""
    said = map(Requirement, distribution(asked.name).requires or [])
    extras = [{"extra": extra} for extra in ("", *asked.extras)]
    return [need for need in said if need.marker is None or any(map(need.marker.evaluate, extras))]


@pytest.mark.parametrize("name", INSTALLED)
def test_what_is_locked_needs_nothing_else(name: str) -> None:
    """Sets are installed without dependencies, so that nothing comes without a hash."""
    sets = {name, "platform"} if name == "mysql" else {name}
    entries = {package for package, some in locked().items() if any(e.sets & sets for e in some)}
    queue = [requirement for one in sets for requirement in SETS[one]]
    seen = set()
    for requirement in queue:
        package = canonicalize_name(requirement.name)
        assert package in entries
        if (package, *requirement.extras) not in seen:
            seen.add((package, *requirement.extras))
            queue += needs(requirement)
    assert len(seen) > 20


@pytest.mark.parametrize("folder", ["scripts/npm", "bench/references/bullmq"])
def test_npm_packages_have_hashes_and_no_place(folder: str) -> None:
    place = ROOT / folder
    asked = json.loads((place / "package.json").read_text())["dependencies"]
    packages = json.loads((place / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == asked
    assert {f"node_modules/{name}" for name in asked} <= packages.keys()
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert not any("resolved" in package for package in packages.values())
