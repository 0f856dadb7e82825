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
_FILES = Path(__file__).parent


def python(name: str) -> Path:
    """The Python of an environment with the packages of `requirements-<name>.lock` in this folder.

    The environment is made when it does not exist or the file has changed. Raises BenchFailed.
    """
    requirements = _FILES / f"requirements-{name}.lock"
    folder, stamp = _FOLDER / name, _FOLDER / name / "made-of"
    program = folder / "bin" / "python"
    wanted = f"{sys.version} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return program
    print(f"installing {requirements.name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    made = subprocess.run(
        [program, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
         "--requirement", requirements],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        raise BenchFailed(f"{requirements.name} cannot be installed\n{made.stderr[-2000:]}")
    # Last, so that an installation that was broken off is made again.
    stamp.write_text(wanted)
    return program
