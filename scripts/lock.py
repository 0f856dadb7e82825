#!/usr/bin/env python3
"""Resolve pyproject.toml into requirements.lock, and export requirements.txt from it.

    scripts/lock.py [--upgrade | --upgrade-package NAME]

The lock has every package that the dependencies lead to, for each platform and for Python 3.11 and
later, with the hashes of all files of its release, and behind each the sets that it belongs to:
`platform` is what the project depends on, the others are named as extras and dependency groups.
`deploy/bootstrap.py` installs sets. A version that is locked stays while pyproject.toml allows it.
requirements.txt is for `pip install -r`: the sets platform and mysql.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT, LOCK, EXPORT = (
    ROOT / name for name in ("pyproject.toml", "requirements.lock", "requirements.txt")
)
# Wheels only: a bare machine has no compiler. mysqlclient has no wheel for Linux.
BUILDS = ("--only-binary :all:", "--no-binary mysqlclient")
EXPORTED = ("platform", "mysql")
_ENTRY = re.compile(r"^(?P<name>[\w.-]+)==\S+.*\n(?:    --hash=.*\n?)+", re.MULTILINE)


def resolve(options: list[str], versions: str) -> dict[str, str]:
    """The entries of a resolution by requirement line; `versions` is a lock whose versions stay."""
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
        file.write(versions)
        file.flush()
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
            *("--python-version", "3.11", "--generate-hashes", "--system-certs"),
            *("--no-header", "--no-annotate", "--output-file", file.name),
            *(word for line in BUILDS for word in line.split()),
            *options,
        ]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        text = Path(file.name).read_text()
    return {entry[0].partition(" \\")[0]: entry[0] for entry in _ENTRY.finditer(text)}


def set_options(project: dict[str, dict[str, object]]) -> dict[str, list[str]]:
    """How uv is told each set."""
    base = ["pyproject.toml"]
    sets = {"platform": base}
    for extra in project["project"]["optional-dependencies"]:  # type: ignore[attr-defined]
        sets[extra] = [*base, "--extra", extra]
    for group in project["dependency-groups"]:
        sets[group] = ["--group", f"pyproject.toml:{group}"]
    return sets


def main(arguments: list[str]) -> None:
    project = tomllib.loads(PROJECT.read_text())
    extras = project["project"]["optional-dependencies"]
    groups = [word for group in project["dependency-groups"] for word in ("--group", group)]
    before = LOCK.read_text() if LOCK.exists() else ""
    entries = resolve(["pyproject.toml", "--all-extras", *groups, *arguments], before)
    versions = "".join(entries.values())
    # A set alone may say more or less about where a package is for, but not another version.
    members = {
        name: {line.partition(" ;")[0] for line in resolve(options, versions)}
        for name, options in set_options(project).items()
    }
    lines = ["# Made from pyproject.toml by: make lock\n", *(f"{line}\n" for line in BUILDS)]
    exported = ["# Exported from requirements.lock by: make lock\n", *lines[1:]]
    for line, entry in entries.items():
        sets = [name for name, packages in members.items() if line.partition(" ;")[0] in packages]
        if "platform" in sets:  # what the platform has is in the sets that extend it, too
            sets = [name for name in sets if name not in extras]
        lines += [entry, f"    # {' '.join(sets)}\n"]
        exported += [entry] if {*sets} & {*EXPORTED} else []
    LOCK.write_text("".join(lines))
    EXPORT.write_text("".join(exported))
    print(f"{len(entries)} packages in {LOCK.name}, of {len(members)} sets")


if __name__ == "__main__":
    main(sys.argv[1:])
