"""The clients for Python and TypeScript, built and installed by themselves, against the running
platform."""

import contextlib
import json
import os
import re
import select
import selectors
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import msgplatform
from msgplatform.core.servers.private_server import free_port
from tests.cluster import ROOT, WEB, Cluster
from tests.flows.client_projects import PythonProject, TypeScriptProject, execute
from tests.flows.traffic import cast

PROGRAMS = Path(__file__).parent
PACKAGE = ROOT / "clients" / "python"
README = PACKAGE / "README.md"
NODE_PACKAGE = ROOT / "clients" / "typescript"
NODE_PROGRAMS = ("client_example", "client_deliveries", "client_publishers", "client_repeats")
INTEGRATE = ROOT / "docs" / "integrate.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TYPESCRIPT_BLOCK = re.compile(r"^```ts\n(.*?)^```", re.MULTILINE | re.DOTALL)
EVENTS, KILLS = (4_000, 8) if os.environ.get("MSGPLATFORM_FULL_LOAD") else (360, 3)  # of each kind
LOOK_SECONDS = 5.0  # at the programs, while clients print nothing
KEYS = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
biz, _ = Biz.objects.get_or_create(name={system!r})
scopes = ["events:write", "events:read", "feed:write", "feed:read", "sms:write", "sms:read",
          "leads:write"]
manager = keys.create(None, {system!r}, keys.management_scopes())[1]
print(json.dumps([keys.create(biz, "client", scopes)[1], manager]))
"""
RECEIVER = """
import json
from notify.models import Receive
print(json.dumps(Receive.objects.create(name={name!r}, url={url!r}).secret))
"""
SUBSCRIPTION = """
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
BizReceive.objects.create(
    biz=Biz.objects.get(name={system!r}), receive=Receive.objects.get(name={receiver!r})
)
"""
STORED = """
import json
from notify.models import BizMsg
print(json.dumps([str(id) for id in BizMsg.objects.filter(biz_id__name={system!r})
                  .values_list("id", flat=True)]))
"""

# Seen by the system `typed`: its own entry goes before the shared one.
EVENT_TYPES: dict[str, Any] = {
    "event-types/order.paid": {"type": "object", "properties": {"other": {"type": "number"}}},
    "systems/typed/event-types/order.paid": {
        "type": "object",
        "required": ["order", "lines"],
        "properties": {
            "order": {"type": "string"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        },
        "$defs": {"line": {"type": "object", "properties": {"article": {"type": "string"}}}},
    },
    "event-types/order.paid.line": {"type": "object", "properties": {"of": {"type": "string"}}},
    "event-types/stock.counted": None,
}
# Requests as the sender makes them, of every format.
DELIVERIES = """
import json, time
from notify.subscriptions import signing
from notify.subscriptions.formats import CONTENT_TYPES, CloudEvents, Format, source
secret = signing.new_secret()
sign, stamp = signing.signer([signing.decode_secret(secret)]), int(time.time())
text = '{"type":"order.paid","timestamp":"2026-11-23T00:00:00.250000Z","data":{"名":"小米"}}'
deliveries = []
for each in Format:
    content, lines = text.encode(), ()
    if events := CloudEvents.of(each, source("shop")):
        content, lines = events.render("7", text)
    headers = {"Content-Type": CONTENT_TYPES[each], "Webhook-Id": "7",
               "Webhook-Timestamp": str(stamp), "Webhook-Idempotency-Key": "order-7",
               "Webhook-Signature": sign(f"7.{stamp}.".encode() + content),
               **dict(line.split(": ", 1) for line in lines)}
    deliveries.append({"format": each, "headers": headers, "body": content.decode()})
print(json.dumps({"secret": secret, "deliveries": deliveries}))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> PythonProject:
    return PythonProject(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TypeScriptProject:
    """With the programs of the documentation and those of the tests."""
    project = TypeScriptProject(tmp_path_factory.mktemp("typescript"))
    quick_start, receiver, many = _TYPESCRIPT_BLOCK.findall(
        (NODE_PACKAGE / "README.md").read_text()
    )
    (in_documentation,) = _TYPESCRIPT_BLOCK.findall(INTEGRATE.read_text())
    project.code("quick_start", quick_start)
    project.code("receiver", receiver.replace("9000", "+process.env.RECEIVER_PORT!"))
    project.code("many", many)
    project.code("integrate", in_documentation)
    for name in NODE_PROGRAMS:
        project.copy(PROGRAMS / f"{name}.ts")
    without_generator = subprocess.run(
        [project.command], env={**os.environ, "MSGPLATFORM_URL": "-", "MSGPLATFORM_KEY": "-"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert without_generator.returncode == 1
    assert "npm install --save-dev json-schema-to-typescript\n" in without_generator.stderr
    project.add_generator_of_types()
    return project


@pytest.fixture(scope="module")
def node_programs(node: TypeScriptProject, shared_cluster: Cluster) -> TypeScriptProject:
    """The same, strictly compiled, with the types of the platform's events."""
    settings = environment(shared_cluster, "typed")
    manager = {**settings, "MSGPLATFORM_KEY": settings["MSGPLATFORM_MANAGEMENT_KEY"]}
    for address, schema in EVENT_TYPES.items():
        shared_cluster.put(f"/api/v1/{address}", {"schema": schema}, manager["MSGPLATFORM_KEY"])
    output = ["--system", "typed", "--output", "events.ts"]
    execute([node.command, *output], node.folder, manager)
    node.compile("quick_start", "receiver", "many", "integrate", *NODE_PROGRAMS)
    return node


def environment(cluster: Cluster, system: str) -> dict[str, str]:
    """The address and the keys of a system, as the programs want them."""
    key, manager = cluster.script(KEYS.format(system=system))
    return {
        "MSGPLATFORM_URL": cluster.base_url,
        "MSGPLATFORM_KEY": key,
        "MSGPLATFORM_MANAGEMENT_KEY": manager,
    }


@contextlib.contextmanager
def receiver(
    cluster: Cluster, system: str, start: Callable[[int, str], subprocess.Popen[str]]
) -> Iterator[tuple[int, Any]]:
    """The port of a README's receiver, and its process; the system delivers to it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    process = start(port, cluster.script(RECEIVER.format(name=f"till-{port}", url=url)))

    def listens() -> bool:
        assert process.poll() is None, process.communicate()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    cluster.wait_until(listens, "the receiver")
    cluster.console.run(SUBSCRIPTION.format(system=system, receiver=f"till-{port}"))
    yield port, process
    process.kill()
    process.communicate()


def line_of(stream: Any) -> str:
    ready, _, _ = select.select([stream], [], [], 180)
    assert ready, "nothing was printed"
    line: str = stream.readline()
    return line


def status_of_a_forged_delivery(port: int) -> str:
    return execute(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "{}",
         "-H", "webhook-id: 1", "-H", "webhook-timestamp: 1", "-H", "webhook-signature: v1,x",
         f"http://127.0.0.1:{port}/"],
        ROOT,
    )  # fmt: skip


def break_off(port: int) -> None:
    """A client that goes away in the middle of its request."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")


def test_the_quick_start_of_python(project: PythonProject, shared_cluster: Cluster) -> None:
    quick_start, of_receiver, with_asyncio = _BLOCK.findall(README.read_text())
    settings = environment(shared_cluster, "shop")
    program = project.code("quick_start", quick_start)

    def start(port: int, secret: str) -> subprocess.Popen[str]:
        code = project.code("receiver", of_receiver.replace("9000", str(port)))
        return project.start(code, SIGNING_SECRET=secret)

    with receiver(shared_cluster, "shop", start) as (port, process):
        first, *_, last = project.run(program, **settings).splitlines()
        assert (first, last) == ("created", "distributed ['delivered']")
        assert line_of(process.stdout) == "genuine order.paid {'order': 7}\n"
        assert status_of_a_forged_delivery(port) == "401"
    assert project.run(program, **settings).splitlines()[0] == "duplicate"
    (in_documentation,) = [
        code for code in _BLOCK.findall(INTEGRATE.read_text()) if "msgplatform_client" in code
    ]
    printed = project.run(project.code("integrate", in_documentation), **settings)
    assert printed.endswith(" created\n")
    lines = project.run(project.code("with_asyncio", with_asyncio), **settings).splitlines()
    assert lines[:3] == ["created"] * 3
    assert len(lines) == 3 + 5  # all that were published


def test_every_method(project: PythonProject, shared_cluster: Cluster) -> None:
    settings = environment(shared_cluster, "example")
    with cast(shared_cluster, {"sink": []}, {"nobody": ["sink"]}):
        shared_cluster.console.run(SUBSCRIPTION.format(system="example", receiver="sink"))
        printed = project.run(PROGRAMS / "client_example.py", **settings)
    assert printed == "every method works\n"


def test_repeats_of_python(project: PythonProject) -> None:
    assert project.run(PROGRAMS / "client_repeats.py") == "repeated as documented\n"


def test_python_goes_through_a_proxy(project: PythonProject, tmp_path: Path) -> None:
    certificate = tmp_path / "localhost.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    key = tmp_path / "key.pem"
    execute([*command.split(), *names, "-keyout", key, "-out", certificate], tmp_path)
    printed = project.run(PROGRAMS / "client_proxies.py", str(certificate), str(key))
    assert printed == "through the proxy\n"


def test_repeats_of_typescript(node_programs: TypeScriptProject) -> None:
    assert node_programs.run("client_repeats") == "repeated as documented\n"


def test_types(project: PythonProject) -> None:
    """Strictly: the client's own modules, and programs that use what is installed."""
    quick_start, _, with_asyncio = _BLOCK.findall(README.read_text())
    sources = project.folder / "sources"
    with ZipFile(project.wheel) as wheel:
        wheel.extractall(sources)
    own = [
        str(file.relative_to(sources))
        for folder in ("msgplatform_client", "msgplatform_client/cli")
        for file in sources.glob(f"{folder}/*.py")
    ]
    strict = [sys.executable, "-m", "mypy", "--strict", "--config-file="]
    strict += ["--python-executable", str(project.python), "--cache-dir", str(project.folder / "m")]
    # The generator's modules are not free of errors.
    strict += ["--follow-imports=silent"]
    execute([*strict, *own], sources)
    programs = [
        PROGRAMS / "client_example.py", PROGRAMS / "client_publishers.py",
        PROGRAMS / "client_repeats.py", PROGRAMS / "client_proxies.py",
        project.code("first", quick_start), project.code("second", with_asyncio),
    ]  # fmt: skip
    execute([*strict, *programs], project.folder)


def test_the_quick_start_of_typescript(
    node_programs: TypeScriptProject, shared_cluster: Cluster
) -> None:
    settings = environment(shared_cluster, "shop-of-node")

    def start(port: int, secret: str) -> subprocess.Popen[str]:
        return node_programs.start("receiver", RECEIVER_PORT=str(port), SIGNING_SECRET=secret)

    with receiver(shared_cluster, "shop-of-node", start) as (port, process):
        first, *_, last = node_programs.run("quick_start", **settings).splitlines()
        assert (first, last) == ("created", "distributed [ 'delivered' ]")
        assert line_of(process.stdout) == 'genuine order.paid {"order":7}\n'
        assert status_of_a_forged_delivery(port) == "401"
        break_off(port)
        assert line_of(process.stderr)  # the receiver says so, and goes on
        assert status_of_a_forged_delivery(port) == "401"
    assert node_programs.run("quick_start", **settings).splitlines()[0] == "duplicate"
    assert node_programs.run("integrate", **settings).endswith(" created\n")
    lines = node_programs.run("many", **settings).splitlines()
    assert lines[:3] == ["created"] * 3
    assert len(lines) == 3 + 5  # all that were published
    required = 'console.log(typeof require("msgplatform-client").Client)'
    assert execute(["node", "-e", required], node_programs.folder) == "function\n"


def test_every_method_of_typescript(
    node_programs: TypeScriptProject, shared_cluster: Cluster
) -> None:
    settings = environment(shared_cluster, "node")
    with cast(shared_cluster, {"node-sink": []}, {"nobody-of-node": ["node-sink"]}):
        shared_cluster.console.run(SUBSCRIPTION.format(system="node", receiver="node-sink"))
        assert node_programs.run("client_example", **settings) == "every method works\n"


def test_typescript_verifies_every_format(
    node_programs: TypeScriptProject, shared_cluster: Cluster
) -> None:
    cases = node_programs.folder / "deliveries.json"
    cases.write_text(json.dumps(shared_cluster.script(DELIVERIES)))
    assert node_programs.run("client_deliveries", str(cases)) == "3 formats\n"


def test_clients_and_platform_have_one_version() -> None:
    versions = {
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
        for folder in (ROOT, PACKAGE)
    }
    versions.add(json.loads((NODE_PACKAGE / "package.json").read_text())["version"])
    versions.add(json.loads((NODE_PACKAGE / "package-lock.json").read_text())["version"])
    assert versions == {msgplatform.__version__}


def test_each_event_once_while_the_web_server_is_killed(
    project: PythonProject, node_programs: TypeScriptProject, cluster: Cluster
) -> None:
    """Both clients at once; one by one in threads, tasks and promises, and in batches."""
    settings = environment(cluster, "load")
    clients = [
        project.start(PROGRAMS / "client_publishers.py", str(EVENTS), **settings),
        node_programs.start("client_publishers", str(EVENTS), **settings),
    ]
    ids: dict[str, str] = {}
    kinds, kills = 5, 0
    for key, id in published(clients, cluster):
        ids[key] = id
        if kills < KILLS and len(ids) >= (kills + 1) * kinds * EVENTS // (KILLS + 1):
            cluster.restart(WEB)
            kills += 1
    assert kills == KILLS
    assert len(ids) == kinds * EVENTS
    assert Counter(ids.values()) == Counter(cluster.script(STORED.format(system="load")))


def published(
    clients: Sequence[subprocess.Popen[str]], cluster: Cluster
) -> Iterator[tuple[str, str]]:
    """Keys and ids as the clients print them, until all have ended well."""
    with selectors.DefaultSelector() as outputs:
        for client in clients:
            assert client.stdout
            outputs.register(client.stdout, selectors.EVENT_READ, client)
        while outputs.get_map():
            events = outputs.select(LOOK_SECONDS)
            if not events:
                cluster.check_programs()
            for ready, _ in events:
                if line := ready.fileobj.readline():
                    key, id = line.split()
                    yield key, id
                else:
                    outputs.unregister(ready.fileobj)
                    errors = ready.data.stderr.read()
                    assert ready.data.wait(timeout=60) == 0, errors[-3000:]
