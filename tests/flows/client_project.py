"""A project of somebody else, in which the Python client is installed from its wheel."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import ROOT


class Project:
    """A folder with an environment in which only the client is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        wheels = folder / "wheels"
        run([ROOT / "scripts" / "clients.sh", wheels], folder)
        (self.wheel,) = wheels.iterdir()
        venv.create(folder / "venv", with_pip=True)
        self.python = folder / "venv" / "bin" / "python"
        self.msgp = folder / "venv" / "bin" / "msgp"
        # The stubs are for mypy, which judges the client in a test.
        packages = [f"{self.wheel}[cli,types]", "types-PyYAML"]
        run([self.python, "-m", "pip", "install", "--quiet", *packages], folder)

    def run(self, program: Path, *arguments: str, **environment: str) -> str:
        """What the program printed. Fails when its exit code is not 0."""
        return run([self.python, program, *arguments], self.folder, environment)

    def start(self, program: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.python), str(program), *arguments], cwd=self.folder, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def code(self, name: str, text: str) -> Path:
        file = self.folder / f"{name}.py"
        file.write_text(text)
        return file


def run(command: list[str | Path], folder: Path, environment: Mapping[str, str] = {}) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
