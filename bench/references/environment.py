"""Environments of references that the platform's own packages must not be mixed with.

Each is a folder in var/bench. It is made when it does not exist or when what it is made of has
changed; two benches that start at once make it once. All raise SideMissing, with one sentence, when
something cannot be installed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.harness.ground import ROOT
from bench.harness.measure import SideMissing

_FOLDER = ROOT / "var" / "bench"
_SECONDS = 300
# Node brings authorities of its own; npm trusts those of the system, too.
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def locked_python(name: str) -> Path:
    """The Python of an environment with the packages of the set `name` of requirements.lock."""
    requirements = subprocess.run(
        [sys.executable, ROOT / "deploy" / "bootstrap.py", "--print", name],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return python(name, requirements)


def python(name: str, *requirements: str) -> Path:
    """The Python of an environment with the packages of requirement files (their texts) with
    hashes, installed one file after the other, so that a later one finds what builds it."""

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        for number, text in enumerate(requirements):
            file = folder / f"requirements-{number}.txt"
            file.write_text(text)
            _install(name, [
                folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps",
                *("--no-build-isolation", "--use-pep517", "--require-hashes"),
                *("--disable-pip-version-check", "--requirement", file),
            ])  # fmt: skip

    return _made(name, f"{sys.version}{requirements}", make) / "bin" / "python"


def node_modules(name: str, source: Path) -> Path:
    """The folder node_modules with the packages of package-lock.json in the folder `source`."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise SideMissing(f"{name} needs node and npm, which are not installed.")

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, folder)
        trusted = {"NODE_EXTRA_CA_CERTS": str(_AUTHORITIES)} if _AUTHORITIES.exists() else {}
        _install(name, [
            *("npm", "ci", "--prefix", folder, "--fetch-retries=2", "--fetch-timeout=30000"),
            *("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"),
        ], {**trusted, **os.environ})  # fmt: skip

    contents = (source / "package-lock.json").read_text()
    return _made(name, contents, make) / "node_modules"


def debian_packages(name: str, *packages: str) -> Path:
    """A folder with what Debian's packages hold; nothing is installed into the system."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SideMissing(f"{name} is not installed, and this is no Debian to take it from.")

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        _install(name, ["apt-get", "download", *packages], folder=folder)
        for file in sorted(folder.glob("*.deb")):
            _install(name, ["dpkg-deb", "--extract", file, folder])

    return _made(name, " ".join(packages), make)


def libraries(folder: Path) -> list[Path]:
    """The folders of shared libraries below a folder."""
    return sorted({file.parent for file in folder.glob("**/lib/**/*.so.*")})


def _made(name: str, contents: str, make: Callable[[Path], None]) -> Path:
    folder, stamp = _FOLDER / name, _FOLDER / name / "made-of"
    digest = hashlib.sha256(contents.encode()).hexdigest()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            print(f"installing {name} into {folder}", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            # Last, so that an installation that was broken off is made again.
            stamp.write_text(digest)
    return folder


def _install(
    name: str,
    argv: list[str | Path],
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> None:
    try:
        made = subprocess.run(
            argv, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SideMissing(f"{name} was not installed within {_SECONDS} seconds.") from None
    if made.returncode:
        reason = " ".join(made.stderr.split())[-400:]
        raise SideMissing(f"{name} cannot be installed: {reason}")
