"""Lock files: they say what the requirement files say, and everything that follows from it."""

from __future__ import annotations

import json
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PLATFORM = ("requirements-base", "requirements", "requirements-dev")
ALL = (*PLATFORM, "requirements-tryton", "bench/references/requirements-dlt")


class Locked(NamedTuple):
    version: str
    text: str
    direct: bool


def requirements(path: Path) -> dict[str, Requirement]:
    """What a requirement file and those that it includes ask for, by name."""
    found: dict[str, Requirement] = {}
    for line in path.read_text().splitlines():
        said = line.partition("#")[0].strip()
        if said.startswith("-r "):
            found |= requirements(path.parent / said.removeprefix("-r "))
        elif said and not said.startswith("--"):
            requirement = Requirement(said)
            found[canonicalize_name(requirement.name)] = requirement
    return found


def locked(name: str) -> dict[str, list[Locked]]:
    """Entries by package; there are several where Pythons need different versions."""
    found: dict[str, list[Locked]] = {}
    text = (ROOT / f"{name}.lock").read_text()
    for match in re.finditer(r"^(\w\S*)==(\S+).*\n(?:[ ].*\n)*", text, re.M):
        entry = Locked(match[2], match[0], "-r " in match[0])
        found.setdefault(match[1], []).append(entry)
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_lock_says_what_its_requirements_say(name: str) -> None:
    """When this fails, run `make lock`."""
    asked = requirements(ROOT / f"{name}.txt")
    wanted = {package: str(requirement.specifier) for package, requirement in asked.items()}
    direct = {
        package: f"=={entry.version}"
        for package, entries in locked(name).items()
        for entry in entries
        if entry.direct
    }
    assert direct == wanted


@pytest.mark.parametrize("name", ALL)
def test_each_package_has_hashes_and_no_place(name: str) -> None:
    entries = [entry for found in locked(name).values() for entry in found]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry.text) for entry in entries)
    text = (ROOT / f"{name}.lock").read_text()
    assert "://" not in text
    assert set(re.findall(r"^--\S+", text, re.M)) <= {"--only-binary", "--no-binary"}


def test_only_mysqlclient_is_built() -> None:
    """For pip the last word about a package counts."""
    for name in PLATFORM[1:]:
        options = re.findall(r"^--.*", (ROOT / f"{name}.lock").read_text(), re.M)
        assert options == ["--only-binary :all:", "--no-binary mysqlclient"]
    base = (ROOT / "requirements-base.lock").read_text()
    assert re.findall(r"^--.*", base, re.M) == ["--only-binary :all:"]


def test_a_package_is_the_same_in_each_lock_of_the_platform() -> None:
    base, whole, dev = map(locked, PLATFORM)

    def files(lock: dict[str, list[Locked]]) -> set[tuple[str, str]]:
        return {
            (f"{package}=={entry.version}", file)
            for package, entries in lock.items()
            for entry in entries
            for file in re.findall(r"--hash=(\S+)", entry.text)
        }

    assert files(base) < files(whole) < files(dev)


def needs(asked: Requirement) -> list[Requirement]:
    """What an installed package needs on this machine, with the extras that are asked for."""
    said = map(Requirement, distribution(asked.name).requires or [])
    extras = [{"extra": extra} for extra in ("", *asked.extras)]
    return [need for need in said if need.marker is None or any(map(need.marker.evaluate, extras))]


@pytest.mark.parametrize("name", PLATFORM)
def test_what_is_locked_needs_nothing_else(name: str) -> None:
    """They are installed without dependencies, so that nothing comes without a hash."""
    found = locked(name)
    waiting = list(requirements(ROOT / f"{name}.txt").values())
    seen = set()
    for asked in waiting:
        package = canonicalize_name(asked.name)
        assert package in found
        if (package, *asked.extras) not in seen:
            seen.add((package, *asked.extras))
            waiting += needs(asked)
    assert len(seen) > 20


def test_npm_packages_have_hashes_and_no_place() -> None:
    folder = ROOT / "deploy" / "npm"
    asked = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == asked
    assert {f"node_modules/{name}" for name in asked} <= packages.keys()
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert not any("resolved" in package for package in packages.values())
