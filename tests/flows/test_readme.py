"""The README's commands, as written, in a clean clone, as a user without rights."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from msgplatform.core.servers.private_server import free_port

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A command that stays, and what it prints; … stands for a word.
_SESSION = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A newcomer's shell has none of what this test run has set.
_KEPT = ("LANG", "PIP_", "SSL_", "REQUESTS_", "http", "HTTP", "no_proxy", "NO_PROXY")


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mp-readme-"))
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "msgplatform")], check=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
    yield folder / "msgplatform"
    shutil.rmtree(folder, ignore_errors=True)


def newcomer(folder: Path) -> dict[str, Any]:
    """How a process of a newcomer is started in their clone."""
    environment = {k: v for k, v in os.environ.items() if k.startswith(_KEPT)}
    environment |= {"HOME": str(folder.parent), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    return {"cwd": folder, "env": environment, **(nobody if os.geteuid() == 0 else {})}


def run(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        capture_output=True, text=True, timeout=1200, check=False, **newcomer(folder),
    )  # fmt: skip


def test_every_command_of_the_readme_works(clone: Path) -> None:
    blocks = _BLOCK.findall((clone / "README.md").read_text())
    assert len(blocks) >= 2
    outputs = []
    for block in blocks:
        done = run(block, clone)
        assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        outputs.append(done.stdout)
    account = json.loads(outputs[0])
    assert account["ok"] is True
    notify = account["flows"]["notify"]
    assert notify["accepted"] >= 1000
    assert notify["lost"] == 0
    assert min(notify["systems"], notify["subscribers"]) >= 3
    crmsync = account["flows"]["crmsync"]
    assert crmsync["equal"] == {"sales-table": True, "call-centre": True, "hive": True}
    assert min(crmsync["changed"], crmsync["deleted"], crmsync["forms"]) >= 200
    feed = account["flows"]["feed"]
    assert (feed["wrong"], feed["unread_wrong"], feed["seen_late"]) == (0, 0, 0)
    assert feed["users"] >= 1_000
    assert feed["relations"] >= 50_000
    assert min(feed["edited"], feed["deleted"]) >= 100
    assert feed["came_back"] >= 40
    assert "ok    settings" in outputs[1]


def printed(expected: str, text: str) -> list[str] | None:
    """The words that stand where `expected` has …, once `text` has all its lines."""
    found = re.search(re.escape(expected).replace("…", r"(\S+)"), text)
    return list(found.groups()) if found else None


def test_make_up_prints_an_address_and_a_password_that_work(clone: Path, tmp_path: Path) -> None:
    ((command, expected),) = _SESSION.findall((clone / "README.md").read_text())
    assert command == "make up"
    port, terminal = free_port(), tmp_path / "terminal"
    expected = expected.replace(":8000/", f":{port}/")
    how = newcomer(clone)
    # The ports that the README names may be in use here.
    how["env"] |= {"ARGS": f"--port {port}", "SMS_RECEIVER_PORT": str(free_port())}
    with terminal.open("w") as output:
        platform = subprocess.Popen(
            ["bash", "-c", command],
            stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            # As in a terminal: a shell lets what it runs in the background ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **how,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while (words := printed(expected, terminal.read_text())) is None:
            assert platform.poll() is None, terminal.read_text()
            assert time.monotonic() < deadline, terminal.read_text()
            time.sleep(0.1)
        _, password = words
        log_in(f"http://127.0.0.1:{port}", password)
        for log in (clone / "var" / "logs").iterdir():
            assert password not in log.read_text(), log
        os.killpg(platform.pid, signal.SIGINT)  # as Ctrl-C does
        platform.wait(timeout=120)
    finally:
        if platform.poll() is None:
            os.killpg(platform.pid, signal.SIGKILL)
            platform.wait()


def log_in(address: str, password: str) -> None:
    browser = requests.Session()
    browser.trust_env = False
    login = browser.get(f"{address}/", timeout=60)
    assert (login.status_code, login.url) == (200, f"{address}/admin/login/?next=/console/")
    assert all(answer.url.startswith(f"{address}/") for answer in login.history)
    form = {"username": "admin", "password": password}
    form |= {"csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    inside = browser.post(login.url, form, timeout=60)
    assert (inside.status_code, inside.url) == (200, f"{address}/console/")
    change = browser.get(f"{address}/admin/password_change/", timeout=60)
    assert (change.status_code, len(change.history)) == (200, 0)
