"""Empty projects in which a client library is installed by itself, as a business system has it."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from bench.harness import migrated
from tests.cluster import ROOT
from tests.program_host import ProgramHost

# Packages of which the TypeScript client is made: a compiler is there, too.
NODE_MODULES = Path(sys.prefix) / "npm-client" / "node_modules"
_STRICT = {
    "strict": True, "noUncheckedIndexedAccess": True, "exactOptionalPropertyTypes": True,
    "target": "es2023", "module": "nodenext", "types": ["node"],
    "typeRoots": [str(NODE_MODULES / "@types")],
}  # fmt: skip


def _package(folder: Path, pattern: str) -> Path:
    """A client package. They are made once in a run, of one document."""

    def make(packages: Path) -> None:
        execute([ROOT / "scripts" / "clients.sh", packages, "python", "typescript"], folder)

    packages = folder / "packages"
    migrated.fill_folder(packages, make, "clients")
    (package,) = packages.glob(pattern)
    return package


class PythonProject:
    """A folder with an environment in which only the client is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheel = _package(folder, "*.whl")
        migrated.fill_folder(folder / "venv", self._install, "client-venv")
        self.python = folder / "venv" / "bin" / "python"
        self.msgp = folder / "venv" / "bin" / "msgp"
        # A script names the Python of the environment that it was installed into.
        _, code = self.msgp.read_text().split("\n", 1)
        self.msgp.write_text(f"#!{self.python}\n{code}")

    def _install(self, environment: Path) -> None:
        """By this run's pip, and compiled when it is imported: half of the time. The stubs are for
        mypy, which judges the client in a test."""
        venv.create(environment)
        execute(
            [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install",
             "--quiet", "--no-compile", f"{self.wheel}[cli,types]", "types-PyYAML"],
            self.folder,
        )  # fmt: skip

    @cached_property
    def host(self) -> ProgramHost:
        """Runs `msgp`, whose start loads more than a command does."""
        folder = self.folder
        return ProgramHost(
            os.environ, folder, folder / "host.log",
            "import msgplatform_client.cli.commands", self.python,
        )  # fmt: skip

    def run(self, program: Path, *arguments: str, **environment: str) -> str:
        """What the program printed. Fails when its exit code is not 0."""
        return execute([self.python, program, *arguments], self.folder, environment)

    def start(self, program: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return _start([self.python, program, *arguments], self.folder, environment)

    def code(self, name: str, text: str) -> Path:
        file = self.folder / f"{name}.py"
        file.write_text(text)
        return file


class TypeScriptProject:
    """A folder with `node_modules` in which only the client is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tarball = _package(folder, "*.tgz")
        (folder / "package.json").write_text('{"type": "module"}')
        execute(
            ["npm", "install", tarball, "--prefer-offline", "--ignore-scripts", "--no-audit",
             "--no-fund", "--loglevel=error"],
            folder,
        )  # fmt: skip
        self.command = folder / "node_modules" / ".bin" / "msgplatform-types"

    def compile(self, *names: str) -> None:
        """Strictly, with the declarations of what is installed."""
        files = [f"{name}.ts" for name in names]
        settings = {"compilerOptions": _STRICT, "files": files}
        (self.folder / "tsconfig.json").write_text(json.dumps(settings))
        execute([NODE_MODULES / ".bin" / "tsc", "--project", "."], self.folder)

    def run(self, name: str, *arguments: str, **environment: str) -> str:
        """What the compiled program printed. Fails when its exit code is not 0."""
        return execute(["node", f"{name}.js", *arguments], self.folder, environment)

    def start(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return _start(["node", f"{name}.js", *arguments], self.folder, environment)

    def code(self, name: str, text: str) -> None:
        (self.folder / f"{name}.ts").write_text(text)

    def copy(self, program: Path) -> None:
        shutil.copy(program, self.folder)

    def add_generator_of_types(self) -> None:
        """What `npm install --save-dev json-schema-to-typescript` does."""
        name = "json-schema-to-typescript"
        (self.folder / "node_modules" / name).symlink_to(NODE_MODULES / name)


def execute(command: list[str | Path], folder: Path, environment: Mapping[str, str] = {}) -> str:
    """What the command printed. Fails when its exit code is not 0."""
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def _start(
    command: list[str | Path], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(part) for part in command], cwd=folder, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
