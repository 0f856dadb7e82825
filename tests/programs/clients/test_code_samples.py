"""The samples of the OpenAPI document work as they are: against a real server, with a key."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crmsync.models import Lead
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.feed.models import Feed
from notify.models import BizMsg
from tests.integration.crmsync import support
from tests.support import sms_rows
from tests.support.api_server import Server

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
APPKEY = "5f1c0a9be2d34786"  # of the example
FLOWS = {
    "notify": "/api/v1/messages",
    "sms": "/api/v1/sms",
    "crmsync": "/api/v1/leads",
    "feed": "/api/v1/feed/posts",
}

ROWS: dict[str, Any] = {"notify": BizMsg, "crmsync": Lead, "feed": Feed}


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all flows: it makes the document once."""
    log = tmp_path_factory.mktemp("server") / "log"
    server = Server(log, "tests.support.platform_asgi:application")
    yield server
    server.stop()


@pytest.fixture
def key() -> str:
    """Of a system that has what the examples name."""
    biz = Biz.objects.create(name="orders")
    sms_rows.gateway()
    sms_rows.account(biz)
    fields = support.form_fields("name", "phone", "email")
    support.landing_page(biz, appkey=APPKEY, form_fields=fields)
    scopes = ("events:write", "sms:write", "leads:write", "feed:write")
    return keys.create(biz, "samples", scopes)[1]


def run(command: list[str], folder: Path, key: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "API_KEY": key}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("flow", FLOWS)
def test_the_samples_of_a_flow(server: Server, key: str, tmp_path: Path, flow: str) -> None:
    """curl, then Python with the same request, then TypeScript, which is JavaScript too. A sample
    with the Python client runs in its own test."""
    status, document = server.request("GET", "/api/schema/?format=json")
    assert status == 200
    operation: dict[str, Any] = json.loads(document)["paths"][FLOWS[flow]]["post"]
    url = f"http://127.0.0.1:{server.port}"
    samples = {
        sample["label"]: re.sub(r"https?://[^/]+(?=/api/)", url, sample["source"])
        for sample in operation["x-codeSamples"]
    }
    assert set(samples) == {"curl", "Python", "TypeScript"}
    of_client = "msgplatform_client" in samples["Python"]
    assert all(url in samples[label] for label in samples if label != "Python" or not of_client)
    (tmp_path / "sample.sh").write_text(f"{samples['curl']} --silent --show-error\n")
    (tmp_path / "sample.py").write_text(samples["Python"])
    # The same payload in other bytes would be a conflict under the same key.
    other = samples["TypeScript"].replace('"idempotency_key": "', '"idempotency_key": "node-')
    (tmp_path / "sample.mjs").write_text(other)
    first = json.loads(run(["bash", "sample.sh"], tmp_path, key))
    assert first["outcome"] == "created"
    if not of_client:
        code, _, answer = run([sys.executable, "sample.py"], tmp_path, key).partition(" ")
        assert (code, json.loads(answer)) == ("200", {**first, "outcome": "duplicate"})
    code, _, answer = run(["node", "sample.mjs"], tmp_path, key).partition(" ")
    assert (code, json.loads(answer)["outcome"]) == ("202", "created")
    if flow == "sms":
        assert len(first["ids"]) == 2
    else:
        assert ROWS[flow].objects.count() == 2
