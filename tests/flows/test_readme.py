"""The README's commands, as written, in a clean clone, as a user without rights. Unless the load is
full, the demo runs once and has a tenth of its messages."""

from __future__ import annotations

import html
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import requests

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import free_port
from scripts.reference import metrics as metrics_page
from tests.flows.conftest import FULL
from tests.flows.forms import Console
from tests.flows.running_demo import Demo, command
from tests.servers import DATABASE, DatabaseServer
from tests.unit.platform.monitoring_files import DECLARED, dashboard_expressions, rule_expressions
from tests.waiting import pause

pytestmark = pytest.mark.both_databases(
    "notify/archive/archiver.py",
    "notify/feed/dispatcher/dispatcher.py",
    "crmsync/poller/reading/database.py",
)

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A command that stays, and what it prints; … stands for a word.
_SESSION = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STATEMENTS = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_RECEIVER = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PUBLISH = re.compile(r"^ *```bash\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# What `make demo` begins with.
INSTALL = "deploy/bootstrap.py platform --try embedded"
MESSAGES = 10_000  # of the demo
# What shows that a flow moves, after the accounting.
MOVING = (
    "msgplatform_notify_attempts_total",
    "msgplatform_sms_accepted_total",
    "msgplatform_sms_received_total",
    "msgplatform_feed_last_hour",
    "msgplatform_crmsync_records_last_hour",
)
# There the oldest entry is found by reading all of them, which only the cleaner does.
NOT_ON_SQLITE = {"msgplatform_feed_entries_archive_overdue_seconds"}
# A message waits for milliseconds only, and a look would meet one by chance: it waits for longer
# while the sender stands still.
WAITING = {"msgplatform_sms_pending", "msgplatform_sms_oldest_pending_seconds"}
# A claim lasts until the Submit is written, and nothing that is stopped from outside keeps it so:
# tests/integration/gateway/test_sms_figures.py has its value.
CLAIMED = {"msgplatform_sms_claimed"}
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
    # Python compiles what is imported; pip would compile each package whole.
    environment |= {"PIP_NO_COMPILE": "1"}
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    return {"cwd": folder, "env": environment, **(nobody if os.geteuid() == 0 else {})}


def run(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        capture_output=True, text=True, timeout=1200, check=False, **newcomer(folder),
    )  # fmt: skip


@pytest.fixture
def demo(clone: Path, tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path, f"--json --messages {MESSAGES // 10}", newcomer(clone))
    yield demo
    demo.kill()


def test_the_demo_goes_on_with_metrics_for_every_rule_and_chart_until_it_is_stopped(
    demo: Demo,
) -> None:
    accounted: dict[str, float] = {}

    def is_accounted() -> bool:
        is_over = "Ctrl-C stops everything" in demo.said
        now = demo.scrape()
        if is_over:
            accounted.update(now)
        return bool(accounted)

    def moves() -> bool:
        now = demo.scrape()
        return all(now.get(name, 0) > accounted.get(name, 0) for name in MOVING)

    demo.until(is_accounted)
    demo.until(moves)
    asked = {name for one in dashboard_expressions() for name in metrics_page.metrics_in(one)}
    demo.until_above_zero(WAITING, stopped="run_sms_sender")
    demo.until_above_zero(asked - CLAIMED)
    of_rules = {name for one in rule_expressions() for name in metrics_page.metrics_in(one)}
    demo.until(
        lambda: demo.scrape() and (of_rules | CLAIMED) - NOT_ON_SQLITE <= demo.largest.keys()
    )
    assert demo.largest.keys() <= DECLARED.keys()
    assert any("demo.sink" in command(child) for child in demo.children)
    demo.interrupt()
    # Fewer messages than a demo needs: it says so at the end, and nothing else.
    assert "too few were sent" in demo.said
    assert "Traceback" not in demo.said
    check_account(demo.account, share=20)  # which of them are edited is chance


def check_account(account: Any, share: int) -> None:
    """Of a demo with at least one message in `share` of those that it has by itself."""
    flows = account["flows"]
    assert {name: flow["lost"] for name, flow in flows.items()} == dict.fromkeys(flows, 0)
    notify = flows["notify"]
    assert notify["accepted"] >= MESSAGES // share
    assert min(notify["systems"], notify["subscribers"]) >= 3
    crmsync = flows["crmsync"]
    assert crmsync["equal"] == {"sales-table": True, "call-centre": True, "hive": True}
    assert min(crmsync["changed"], crmsync["deleted"], crmsync["forms"]) >= 200 // share
    feed = flows["feed"]
    assert (feed["wrong"], feed["unread_wrong"], feed["seen_late"]) == (0, 0, 0)
    assert feed["users"] >= 1_000 // share
    assert feed["relations"] >= 50_000 // share
    assert min(feed["edited"], feed["deleted"]) >= 100 // share
    assert feed["came_back"] >= 40 // share


def printed(expected: str, text: str) -> list[str] | None:
    """The words that stand where `expected` has …, once `text` has all its lines."""
    found = re.search(re.escape(expected).replace("…", r"(\S+)"), text)
    return list(found.groups()) if found else None


def test_make_up_and_the_first_message(
    clone: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From the clone to a message that is delivered, and to one that failed and is sent again; with
    TEST_DATABASE=mysql on an empty server."""
    text = (clone / "README.md").read_text()
    ((command, expected),) = _SESSION.findall(text)
    port, terminal = free_port(), tmp_path / "terminal"
    expected = expected.replace(":8000/", f":{port}/")
    how = newcomer(clone)
    shutil.rmtree(clone / "var", ignore_errors=True)  # a first start makes the tables itself
    # The ports that the README names may be in use here.
    how["env"] |= {"ARGS": f"--port {port}", "SMS_RECEIVER_PORT": str(free_port())}
    how["env"]["ACCESS_LOG"] = "yes"  # which has no link either
    if not (FULL or DATABASE == "mysql"):  # `up` starts all in tests/flows/test_supervision.py
        how["env"]["FLOWS"] = "notify"
    if DATABASE == "mysql":
        how["env"] |= own_database(text, request.getfixturevalue("empty_server"))
        how["env"]["ARGS"] += " --migrate"
    with terminal.open("w") as output:
        platform = subprocess.Popen(
            ["bash", "-c", command],
            stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            # As in a terminal: a shell lets what it runs in the background ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **how,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 900
        while (words := printed(expected, terminal.read_text())) is None:
            assert platform.poll() is None, terminal.read_text()
            assert time.monotonic() < deadline, terminal.read_text()
            time.sleep(0.1)
        _, link = words
        console = choose_password(f"http://127.0.0.1:{port}", f"/console/password/{link}")
        first_message(console, text, clone)
        token = link.partition("token=")[2]
        assert token
        for file in filter(Path.is_file, (clone / "var").rglob("*")):
            with suppress(FileNotFoundError):  # a file that has gone since
                assert token.encode() not in file.read_bytes(), file
        again = requests.get(f"{console.address}/console/password/{link}", timeout=600)
        assert "This link no longer works" in again.text
        emergency = run(".venv/bin/python manage.py login_link admin", clone).stdout.strip()
        assert emergency.startswith(f"{console.address}/console/sign-in/link?token=")
        assert "signs you in as admin" in requests.get(emergency, timeout=600).text
        os.killpg(platform.pid, signal.SIGINT)  # as Ctrl-C does
        platform.wait(timeout=300)
    finally:
        if platform.poll() is None:
            os.killpg(platform.pid, signal.SIGKILL)
            platform.wait()


def test_every_command_of_the_readme_works(clone: Path) -> None:
    demo, commands = _BLOCK.findall((clone / "README.md").read_text())
    assert demo.startswith("make demo ")
    if FULL:
        done = run(demo, clone)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        account = json.loads(done.stdout)
        assert account["ok"] is True
        check_account(account, share=1)
    else:  # the demo of the first test; nothing happens when it has installed everything
        run(f"python3 {INSTALL}", clone).check_returncode()
    done = run(commands, clone)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert "ok    settings" in done.stdout


@pytest.fixture
def empty_server() -> Iterator[MariaDb]:
    """With a binary log, as MySQL begins."""
    folder = Path(tempfile.mkdtemp(prefix="mp-own-"))
    with DatabaseServer(folder / "s", {"log_bin": "binlog", "server_id": 1}) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


def own_database(readme: str, server: MariaDb) -> dict[str, str]:
    """What the README says of a server: its statements are run; the variable that names it."""
    (statements,) = _STATEMENTS.findall(readme)
    for statement in filter(None, statements.splitlines()):
        server.execute(statement)
    (url,) = re.findall(r"DATABASE_URL=(mysql:\S+) make up ARGS=--migrate", readme)
    return {"DATABASE_URL": url.replace(":3306/", f":{server.port}/")}


def choose_password(address: str, link: str) -> Console:
    console = Console(address)
    login = console.get("/")
    assert login.url == f"{address}/admin/login/?next=/console/"
    assert all(answer.url.startswith(f"{address}/") for answer in login.history)
    own = "violet umbrella 7"
    inside = console.submit(link, new_password1=own, new_password2=own)
    assert inside.url == f"{address}/console/"
    return console


def first_message(console: Console, readme: str, clone: Path) -> None:
    """The README's steps, with the ports of this test."""
    port = free_port()
    # While everything starts, the overview may say that a server does not answer yet.
    until(lambda: "Nothing has gone through this platform yet" in console.get("/console/").text)
    key, secret = set_up(console, f"http://127.0.0.1:{port}/")
    shown = html.unescape(console.get("/console/getting-started").text)
    assert f"curl -X POST {console.address}/api/v1/messages" in shown
    assert f"Bearer {key[:16]}…" in shown
    (code,) = _RECEIVER.findall(readme)
    program = clone / "receiver.py"
    program.write_text(dedent(code).replace("9000", str(port)))
    (publish,) = _PUBLISH.findall(readme)
    publish = publish.replace("http://127.0.0.1:8000", console.address).replace("mp_…", key)

    with Receiver(program, secret, clone, port) as receiver:
        done = run(publish, clone)
        assert json.loads(done.stdout)["outcome"] == "created", (done.stdout, done.stderr)
        assert receiver.line().startswith('genuine {"type":"order.paid","timestamp":')
    again = run(publish.replace("order-7-paid", "order-8-paid"), clone)
    message = json.loads(again.stdout)["id"]
    listed = f"/console/search/notify?id={message}"
    until(lambda: status(console.get(listed).text) == "exhausted")
    with Receiver(program, secret, clone, port) as receiver:
        boxes = re.findall(r'<input type="checkbox"[^>]+>', console.get(listed).text)
        ticks = re.findall(r'name="id" value="(\d+)"', " ".join(boxes))
        assert ticks == [message]
        console.submit(listed, id=ticks, query="")
        assert receiver.line().startswith('genuine {"type":"order.paid","timestamp":')
        until(lambda: status(console.get(listed).text) == "delivered")
    # The checklist has filled itself in, and the overview begins without it.
    until(lambda: "5 of 5 steps done" in console.get("/console/getting-started").text)
    until(lambda: "Nothing has gone through" not in console.get("/console/").text)


def status(page: str) -> str:
    """The mark of the one delivery in a list."""
    marks = re.findall(r'<span class="mark [a-z ]+"[^>]*>([^<]+)</span>', page)
    return marks[0] if len(marks) == 1 else ""


def set_up(console: Console, url: str) -> tuple[str, str]:
    """Add what the README's first step names; the API key and the signing secret."""
    console.submit("/admin/msgplatform/biz/add/", name="shop")
    page = console.submit(
        "/admin/msgplatform/apikey/add/", biz="shop", name="till", scopes=["events:write"]
    )
    (key,) = set(re.findall(r"mp_\w{12}_[\w-]{43}", page.text))
    page = console.submit("/admin/notify/receive/add/", name="till", url=url)
    (secret,) = set(re.findall(r"whsec_[A-Za-z0-9+/]+=*", page.text))
    # The lists of systems and consumers are loaded by a script, as they may be long.
    console.submit("/admin/notify/bizreceive/add/", biz="1", receive="1", attempts_limit="1")
    return key, secret


class Receiver:
    """The README's receiver as a process, and what it prints."""

    def __init__(self, program: Path, secret: str, clone: Path, port: int) -> None:
        self._port = port
        self._process = subprocess.Popen(
            ["python3", str(program), secret],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **newcomer(clone),
        )  # fmt: skip

    def __enter__(self) -> Receiver:
        # The subscription tries once: who starts later than the first attempt gets nothing.
        until(self._listens)
        return self

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the receiver has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def line(self) -> str:
        """The next line that it prints, within ten minutes: a busy machine starts twenty programs
        slowly."""
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], 600)
        assert ready, "nothing was delivered"
        return self._process.stdout.readline()

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate()


def until(condition: Callable[[], object]) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + 600
        pause(begun, 0.5)  # most looks are pages
