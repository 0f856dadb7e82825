"""The Python client, built as a wheel and installed by itself, against the running platform."""

from __future__ import annotations

import os
import re
import select
import socket
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import msgplatform
from msgplatform.core.servers.private_server import free_port
from tests.cluster import ROOT, WEB, Cluster
from tests.flows.client_project import Project, run
from tests.flows.traffic import cast

PROGRAMS = Path(__file__).parent
PACKAGE = ROOT / "clients" / "python"
README = PACKAGE / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EVENTS, KILLS = (4_000, 8) if os.environ.get("MSGPLATFORM_FULL_LOAD") else (600, 3)  # of each kind
KEYS = """
import json
from msgplatform.api.access import keys
from msgplatform.models import Biz
biz, _ = Biz.objects.get_or_create(name={system!r})
scopes = ["events:write", "events:read", "feed:write", "feed:read", "sms:write", "sms:read"]
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


def environment(cluster: Cluster, system: str) -> dict[str, str]:
    """The address and the keys of a system, as the programs want them."""
    key, manager = cluster.script(KEYS.format(system=system))
    return {
        "MSGPLATFORM_URL": cluster.base_url,
        "MSGPLATFORM_KEY": key,
        "MSGPLATFORM_MANAGEMENT_KEY": manager,
    }


@pytest.fixture
def receiver(project: Project, shared_cluster: Cluster) -> Iterator[tuple[int, Any]]:
    """The port of the README's receiver, and its process; the system `shop` delivers to it."""
    _, code, _ = _BLOCK.findall(README.read_text())
    port = free_port()
    program = project.code("receiver", code.replace("9000", str(port)))
    address = f"http://127.0.0.1:{port}/"
    secret = shared_cluster.script(RECEIVER.format(name=f"till-{port}", url=address))
    process = project.start(program, SIGNING_SECRET=secret)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    shared_cluster.wait_until(listens, "the receiver")
    yield port, process
    process.kill()
    process.communicate()


def test_the_quick_start_of_the_readme(
    project: Project, shared_cluster: Cluster, receiver: tuple[int, Any]
) -> None:
    port, process = receiver
    quick_start, _, with_asyncio = _BLOCK.findall(README.read_text())
    settings = environment(shared_cluster, "shop")
    shared_cluster.console.run(SUBSCRIPTION.format(system="shop", receiver=f"till-{port}"))
    program = project.code("quick_start", quick_start)
    first, *_, last = project.run(program, **settings).splitlines()
    assert (first, last) == ("created", "split ['delivered']")
    ready, _, _ = select.select([process.stdout], [], [], 180)
    assert ready, "nothing was delivered"
    assert process.stdout.readline() == "genuine order.paid {'order': 7}\n"
    assert project.run(program, **settings).splitlines()[0] == "duplicate"
    (in_documentation,) = [
        code
        for code in _BLOCK.findall((ROOT / "docs" / "integrate.md").read_text())
        if "msgplatform_client" in code
    ]
    printed = project.run(project.code("integrate", in_documentation), **settings)
    assert printed.endswith(" created\n")
    lines = project.run(project.code("with_asyncio", with_asyncio), **settings).splitlines()
    assert lines[:3] == ["created"] * 3
    assert len(lines) == 3 + 5  # all that were published
    forged = run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "{}",
         "-H", "webhook-id: 1", "-H", "webhook-timestamp: 1", "-H", "webhook-signature: v1,x",
         f"http://127.0.0.1:{port}/"],
        project.folder,
    )  # fmt: skip
    assert forged == "401"


def test_every_method(project: Project, shared_cluster: Cluster) -> None:
    settings = environment(shared_cluster, "example")
    with cast(shared_cluster, {"sink": []}, {"nobody": ["sink"]}):
        shared_cluster.console.run(SUBSCRIPTION.format(system="example", receiver="sink"))
        printed = project.run(PROGRAMS / "client_example.py", **settings)
    assert printed == "every method works\n"


def test_types(project: Project) -> None:
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
    strict = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental"]
    strict += ["--python-executable", str(project.python)]
    # The generator's modules are not free of errors.
    run([*strict, "--follow-imports=silent", *own], sources)
    programs = [
        PROGRAMS / "client_example.py", PROGRAMS / "client_publishers.py",
        project.code("first", quick_start), project.code("second", with_asyncio),
    ]  # fmt: skip
    run([*strict, *programs], project.folder)


def test_client_and_platform_have_one_version() -> None:
    versions = {
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
        for folder in (ROOT, PACKAGE)
    }
    assert versions == {msgplatform.__version__}


def test_each_event_once_while_the_web_server_is_killed(project: Project, cluster: Cluster) -> None:
    settings = environment(cluster, "load")
    process = project.start(PROGRAMS / "client_publishers.py", str(EVENTS), **settings)
    assert process.stdout
    assert process.stderr
    ids: dict[str, str] = {}
    kills = 0
    for line in process.stdout:
        key, id = line.split()
        ids[key] = id
        if kills < KILLS and len(ids) >= (kills + 1) * 3 * EVENTS // (KILLS + 1):
            cluster.restart(WEB)
            kills += 1
    errors = process.stderr.read()
    assert process.wait(timeout=60) == 0, errors[-3000:]
    assert kills == KILLS
    assert len(ids) == 3 * EVENTS
    assert Counter(ids.values()) == Counter(cluster.script(STORED.format(system="load")))
