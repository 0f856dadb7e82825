"""A program that is forked has the settings and the connection of one that starts by itself."""

import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from msgplatform.core.servers.private_server import ServerFailed
from tests.cluster import ROOT
from tests.program_host import ProgramHost, start_code
from tests.waiting import pause

# Reprs of functions and of objects without one of their own have an address.
SHOW = """
import json, logging, re
from django.conf import settings
from django.db import connection, connections
names = [name for name in dir(settings) if name.isupper()]
shown = {name: re.sub(" at 0x[0-9a-f]+", "", repr(getattr(settings, name))) for name in names}
print(json.dumps({**shown, "connection": repr(connection.settings_dict),
                  "connections": [*connections], "level": logging.getLogger().level}))
"""


def variables(url: str, folder: Path) -> dict[str, str]:
    return {
        **os.environ, "MSGPLATFORM_PROFILE": "daemon", "DATABASE_URL": url,
        "REDIS_URL": f"unix://{folder}/work.sock", "SMS_REDIS_URL": f"unix://{folder}/sms.sock",
        "STATE_DIR": str(folder), "PUBLIC_URL": f"https://{folder.name}.example",
        "ENCRYPTION_KEY": b64encode(folder.name.ljust(32).encode()).decode(),
        "OUTBOUND_ALLOW": "127.0.0.0/8", "NOTIFY_TIMEOUT_SECONDS": "7", "SMS_RECEIVER_PORT": "8801",
    }  # fmt: skip


def forked(environment: dict[str, str]) -> Any:
    process = start_code(SHOW, [], environment)
    assert process.stdin
    assert process.stdout
    with process.stdin, process.stdout:
        shown = json.loads(process.stdout.read())
    assert process.wait() == 0
    return shown


def test_a_host_that_was_killed(tmp_path: Path) -> None:
    """The test that met it fails, and the record of the run goes on."""
    setup = "import signal; os.kill(os.getpid(), signal.SIGKILL)"
    host = ProgramHost(os.environ, ROOT, tmp_path / "log", setup)
    with pytest.raises(ServerFailed, match="ended with -9"):
        host.ask(1)
    assert host.has_ended
    assert host.core_seconds() == 0.0
    host.close()


@pytest.mark.parametrize("url", ["sqlite:////tmp/{}.db", "mysql://root@localhost/{}"])
def test_settings_are_those_of_its_own_environment(url: str, tmp_path: Path) -> None:
    first, second = (variables(url.format(name), tmp_path / name) for name in ("one", "two"))
    second |= {
        "ALERT_SILENT_SECONDS": "20", "CRM_LEASE_SECONDS": "12", "FEED_CLEAN_SECONDS": "2",
        "NOTIFY_LEASE_SECONDS": "40", "SMS_LEASE_SECONDS": "10", "SMS_REPLICAS": "1",
        "ACCESS_LOG": "yes", "LOG_LEVEL": "ERROR", "METRICS_TOKEN": "a token",
        "COLD_DATABASE_URL": url.format("cold"),
    }  # fmt: skip
    assert forked(first)["DATABASES"] != forked(second)["DATABASES"]
    code = f"import django; django.setup()\n{SHOW}"
    alone = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=second, capture_output=True, check=True
    )
    assert forked(second) == json.loads(alone.stdout)


def test_a_host_that_hangs_says_where(tmp_path: Path) -> None:
    setup = "def load(): import time; print('loads', flush=True); time.sleep(600)\nload()"
    log, begun = tmp_path / "log", time.monotonic()
    host = ProgramHost(os.environ, ROOT, log, setup, seconds=0.1)
    while "loads" not in log.read_text():
        assert time.monotonic() < begun + 60, "it does not start"
        pause(begun, 0.01)
    with pytest.raises(ServerFailed, match=r"ended with -6:\n(.*\n)*.* in load\n"):
        host.ask(1)
    host.close()
