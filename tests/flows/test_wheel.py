"""The wheel and the sdist: built without the network, the same bytes each time, with all files of
the product. Installed into an empty environment, the command delivers messages from an empty folder
and writes nothing beside its STATE_DIR."""

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import msgplatform
from tests.flows.conftest import FULL

ROOT = Path(__file__).resolve().parents[2]
NAME = f"msgplatform-{msgplatform.__version__}"
PRODUCT = ("msgplatform", "notify", "gateway", "crmsync", "demo", "templates", "locale")
MESSAGES = 200  # of the demo
INTRODUCTION = """
from msgplatform.doors.api.schema_document import introduce
print(introduce({"info": {}}))
"""
# Where the wheel has them, under `msgplatform/files`.
PACKED = ("templates/", "locale/")


def run(*words: object, cwd: Path = ROOT, code: int = 0, **variables: str) -> str:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env={**environment, **variables}, capture_output=True,
        text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def build(folder: Path) -> dict[str, str]:
    """The name of each file that was built, and the digest of its bytes."""
    run(sys.executable, "-m", "hatchling", "build", "-d", folder)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def product_files() -> set[str]:
    return set(run("git", "ls-files", "--", *PRODUCT).splitlines())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    assert build(folder).keys() == {f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz"}
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q"),
        *("--no-deps", "--no-index", "--no-compile", built / f"{NAME}-py3-none-any.whl"),
    )
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_a_build_can_be_repeated(built: Path, tmp_path: Path) -> None:
    """A wheel that was built from the sdist, as pip does it, has the same bytes."""
    first = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built.iterdir()}
    if FULL:
        assert build(tmp_path / "again") == first
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=tmp_path / NAME)
    (wheel,) = (tmp_path / NAME / "dist").iterdir()
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == first[wheel.name]


def test_all_files_of_the_product_are_in_it(built: Path) -> None:
    names = set(zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl").namelist())
    expected = {
        f"msgplatform/files/{name}" if name.startswith(PACKED) else name for name in product_files()
    } | {"msgplatform/files/docs/integrate.md"}
    built_before = (".dist-info/", "/files/clients/", "/files/site/")
    own = {name for name in names if not any(part in name for part in built_before)}
    assert own == expected
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        sources = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert product_files() | {"README.md", "LICENSE", "deploy/compose.yaml"} <= sources


def test_it_works_from_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    command = environment / "bin" / "msgplatform"
    before = set(environment.rglob("*.py"))
    run(command, "make_keys", cwd=tmp_path)
    run(command, "check", cwd=tmp_path)
    introduction = run(command, "shell", "-v0", "-c", INTRODUCTION, cwd=tmp_path)
    assert "Idempotency" in introduction, "docs/integrate.md"
    # With so few messages the demo calls its own account too small (1).
    words = ("demo", "--exit", "--json", "--messages", MESSAGES)
    account = json.loads(run(command, *words, cwd=tmp_path, code=1, FLOWS="notify"))
    figures = account["flows"]["notify"]
    assert (figures["accepted"], figures["lost"], account["errors"]) == (MESSAGES, 0, [])
    assert figures["delivered"] > MESSAGES
    assert [path.name for path in tmp_path.iterdir()] == ["var"]
    assert set(environment.rglob("*.py")) == before
    run(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "check")


def test_the_line_of_the_documentation_installs_it(built: Path, tmp_path: Path) -> None:
    """requirements.txt has hashes, and beside a hash pip refuses a file without one."""
    library = tmp_path / "library-1.0-py3-none-any.whl"
    with zipfile.ZipFile(library, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: library\nVersion: 1.0\n"
        archive.writestr("library-1.0.dist-info/METADATA", metadata)
        archive.writestr("library-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("library-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    (tmp_path / "requirements.txt").write_text(f"library==1.0 --hash=sha256:{digest}\n")
    text = (ROOT / "docs" / "install.md").read_text()
    (line,) = re.findall(r"`(pip install [^`]*msgplatform-….whl[^`]*)`", text)
    line = line.replace("msgplatform-….whl", str(built / f"{NAME}-py3-none-any.whl"))
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    pip = f'pip() {{ {sys.executable} -m pip --python env/bin/python "$@"; }}'
    run(
        "sh", "-euc", f"{pip}; {line}", cwd=tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path)
    )
    assert (tmp_path / "env" / "bin" / "msgplatform").exists()


def test_a_client_without_its_generated_part_is_not_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
         "--wheel-dir", os.devnull, ROOT / "clients" / "python"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "lacks the generated part of the client" in done.stderr
    assert "make clients" in done.stderr
    assert "Traceback" not in done.stderr
