"""Clients that four generators make from our document compile, and work against a real server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from msgplatform.doors.api.access import keys
from msgplatform.models import ApiKey, Biz
from notify.feed.models import Feed
from notify.models import BizMsg, BizReceive, EventType
from tests.support.api_server import Server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PROGRAMS = Path(__file__).parent
NODE_MODULES = Path(sys.prefix) / "npm" / "node_modules"
_TYPESCRIPT = {
    "strict": True, "noUncheckedIndexedAccess": True, "target": "es2022", "module": "es2022",
    "moduleResolution": "bundler", "lib": ["es2022", "dom", "dom.iterable"], "types": [],
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "log", "tests.support.platform_asgi:application")
    yield server
    server.stop()


class Workshop:
    """A folder with the document of a server, in which a client is made and used."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{server.port}"
        status, document = server.request("GET", "/api/schema/?format=json")
        assert status == 200
        self.document = folder / "document.json"
        self.document.write_bytes(document)

    def run(self, *command: str | Path, **environment: str) -> str:
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env={**os.environ, "PATH": tools, **environment},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def compile(self, program: str) -> None:
        shutil.copy(PROGRAMS / f"{program}.ts", self.folder)
        (self.folder / "node_modules").symlink_to(NODE_MODULES)
        (self.folder / "package.json").write_text('{"type": "module"}')
        settings = {"compilerOptions": _TYPESCRIPT, "include": ["*.ts"]}
        (self.folder / "tsconfig.json").write_text(json.dumps(settings))
        self.run(NODE_MODULES / ".bin" / "tsc", "--project", ".")


def openapi_generator(workshop: Workshop) -> list[str | Path]:
    workshop.run(
        "openapi-generator-cli", "generate", "-g", "python", "-i", workshop.document,
        "-o", ".", "--package-name", "generated",
    )  # fmt: skip
    return [sys.executable, shutil.copy(PROGRAMS / "by_openapi_generator.py", workshop.folder)]


def openapi_python_client(workshop: Workshop) -> list[str | Path]:
    said = workshop.run(
        "openapi-python-client", "generate", "--path", workshop.document,
        "--output-path", "generated", "--meta", "none",
    )  # fmt: skip
    assert "Warning" not in said, said  # of an operation or a model that it leaves out
    program = shutil.copy(PROGRAMS / "by_openapi_python_client.py", workshop.folder)
    # Errors of the program alone: the generator's own classes are not free of them.
    own = ("--follow-imports=silent", "--no-incremental", "--config-file=")
    workshop.run("mypy", "--strict", *own, program)
    return [sys.executable, program]


def openapi_typescript(workshop: Workshop) -> list[str | Path]:
    tool = NODE_MODULES / ".bin" / "openapi-typescript"
    workshop.run(tool, workshop.document, "-o", "generated.ts")
    workshop.compile("by_openapi_typescript")
    return ["node", "by_openapi_typescript.js"]


def orval(workshop: Workshop) -> list[str | Path]:
    output = {"target": "./generated.ts", "client": "fetch", "baseUrl": workshop.url}
    settings = {"api": {"input": str(workshop.document), "output": output}}
    config = workshop.folder / "orval.config.cjs"
    config.write_text(f"module.exports = {json.dumps(settings)};")
    workshop.run(NODE_MODULES / ".bin" / "orval", "--config", config)
    workshop.compile("by_orval")
    return ["node", "by_orval.js"]


@pytest.mark.full
@pytest.mark.parametrize(
    "generate",
    [
        openapi_generator,
        openapi_python_client,
        openapi_typescript,
        orval,
    ],
)
def test_a_generated_client_works(
    server: Server, tmp_path: Path, generate: Callable[[Workshop], list[str | Path]]
) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    workshop = Workshop(folder, server)
    _key, plain = keys.create(None, "provisioning", keys.management_scopes())
    command = generate(workshop)
    said = workshop.run(*command, MSGPLATFORM_URL=workshop.url, MSGPLATFORM_KEY=plain)
    assert BizMsg.objects.get().pk == int(said)
    assert BizReceive.objects.get().schedule == [5, 300]
    # What has no answer was done nevertheless.
    assert not EventType.objects.exists()
    assert Feed.objects.get().delete_date
    assert BizReceive.objects.get().status == BizReceive.Status.DISCARDED
    assert not Biz.objects.get(name="orders").enabled
    assert ApiKey.objects.get(biz__name="orders").revoked_at
