"""Environments of references that the platform's own packages must not be mixed with."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.harness.ground import ROOT
from bench.harness.processes import BenchFailed

_FOLDER = ROOT / "var" / "bench"


def python(name: str) -> Path:
    """The Python of an environment with the packages of the set `name` of requirements.lock.

    The environment is made when it does not exist or the set has changed. Raises BenchFailed.
    """
    requirements = subprocess.run(
        [sys.executable, ROOT / "deploy" / "bootstrap.py", "--print", name],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    folder, stamp = _FOLDER / name, _FOLDER / name / "made-of"
    program = folder / "bin" / "python"
    contents = f"{sys.version} {hashlib.sha256(requirements.encode()).hexdigest()}"
    if stamp.exists() and stamp.read_text() == contents:
        return program
    print(f"installing {name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    (folder / "requirements.txt").write_text(requirements)
    made = subprocess.run(
        [program, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
         "--requirement", folder / "requirements.txt"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        raise BenchFailed(f"{name} cannot be installed\n{made.stderr[-2000:]}")
    # Last, so that an installation that was broken off is made again.
    stamp.write_text(contents)
    return program
