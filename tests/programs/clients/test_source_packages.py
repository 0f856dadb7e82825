"""The source packages for Go, Java and PHP are compiled as they are, offline; those for Go and Java
are used against a real server, too."""

import importlib.resources
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizMsg
from tests.cluster import ROOT
from tests.support.api_server import Server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
PROGRAMS = Path(__file__).parent
# The generator's own libraries are those that its Java client needs; annotations come from Debian.
GENERATOR = importlib.resources.files("openapi_generator_cli") / "openapi-generator.jar"
JAVA_LIBRARIES = f"{GENERATOR}:/usr/share/java/jakarta-annotation-api.jar"


def make_source(folder: Path, language: str) -> Path:
    """The folder of a language's package, made in `folder`."""
    _run(folder, ROOT / "scripts" / "clients.sh", folder, language)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (source,) = folder.glob(f"msgplatform-client-{language}-0*[0-9]")
    return source


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The address of a server and a key for it."""
    server = Server(tmp_path / "log", "tests.support.platform_asgi:application")
    shop = Biz.objects.create(name="shop")
    key = keys.create(shop, "client", ["events:write", "events:read"])[1]
    yield {"MSGPLATFORM_URL": f"http://127.0.0.1:{server.port}", "MSGPLATFORM_KEY": key}
    server.stop()


def _run(folder: Path, *command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "WARN" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def test_go(tmp_path: Path, environment: dict[str, str]) -> None:
    source = make_source(tmp_path, "go")
    client = "msgplatform.example/client/go"
    (tmp_path / "go.mod").write_text(
        f"module example\n\nrequire {client} v0.0.0\n\nreplace {client} => {source}\n"
    )
    shutil.copy(PROGRAMS / "by_go.go", tmp_path)
    offline = {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    if FULL:  # `go run` compiles them, too
        _run(tmp_path, "go", "vet", client, "example", **offline)
    printed = _run(tmp_path, "go", "run", ".", **offline, **environment)
    assert BizMsg.objects.get().pk == int(printed)


@pytest.mark.full
def test_java(tmp_path: Path, environment: dict[str, str]) -> None:
    source = make_source(tmp_path, "java")
    files = [*source.glob("src/main/**/*.java"), PROGRAMS / "ByJava.java"]
    arguments = tmp_path / "files"
    arguments.write_text("\n".join(map(str, files)))
    _run(
        tmp_path, "javac", "-proc:none", "-classpath", JAVA_LIBRARIES, "-d", "out", f"@{arguments}"
    )
    classes = f"out:{JAVA_LIBRARIES}"
    printed = _run(tmp_path, "java", "-classpath", classes, "ByJava", **environment)
    assert BizMsg.objects.get().pk == int(printed)


@pytest.mark.full
def test_php(tmp_path: Path) -> None:
    source = make_source(tmp_path, "php")
    count = _run(PROGRAMS, "php", "declare_all.php", source)
    assert int(count) == len(list(source.glob("lib/**/*.php"))) > 100
