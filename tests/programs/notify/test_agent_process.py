"""The Agent as a process, from a business system's database into the real intake, and killed."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from bench.harness.mariadb import MariaDb
from msgplatform import env
from notify.agent.store import ALIAS
from tests.cluster import ROOT, WEB, Cluster
from tests.program_host import Program, start_program
from tests.redis_client import connect
from tests.support import agent_support
from tests.support.agent_support import KINDS, Shop, relays, until_empty
from tests.support.http_sinks import refusing_port

# A developer's shell may carry an Agent's own variables.
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
TOKEN = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
print(json.dumps(keys.create(Biz.objects.create(name={name!r}), "agent", ["events:write"])[1]))
"""
ACCEPTED = """
import json
from msgplatform.models import Biz
from notify.models import BizMsg, IdempotencyKey
biz = Biz.objects.get(name={name!r})
mine = BizMsg.objects.filter(biz_id=biz.pk).order_by("id")
rows = [[m.event_type, m.channel, bytes(m.payload).decode()] for m in mine]
keys = IdempotencyKey.objects.filter(biz_id=biz.pk).values_list("key", flat=True)
print(json.dumps([rows, sorted(keys)]))
"""


FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
# Of a test that is about the Agent's other neighbours: one database shows it.
ANY_KIND = pytest.mark.parametrize(
    "kind", KINDS if FULL else KINDS[:1], indirect=True, scope="module"
)
KILLS = 3 if FULL else 2  # of both Agents
_unblocked = pytest.fixture(autouse=True)(agent_support.foreign_databases_only)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Of both databases, the platform's and the business system's."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(kind: str, mariadb: MariaDb) -> Iterator[Cluster]:
    """The platform's web process, which is its intake."""
    folder = Path(tempfile.mkdtemp(prefix="mp-agent-"))
    if kind == "mariadb":
        url = mariadb.create(folder.name.replace("-", "_"))
    else:
        url = f"sqlite:///{folder / 'platform.db'}"
    with Cluster(folder, url, programs=(WEB,)) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


class System:
    """A business system: its database, its key, its Agents."""

    def __init__(self, cluster: Cluster, shop: Shop, folder: Path) -> None:
        self.cluster, self.shop, self.folder = cluster, shop, folder
        self.name = folder.name
        self.key_file = folder / "key"
        self.key = cluster.script(TOKEN.format(name=self.name))
        self.key_file.write_text(self.key + "\n")
        self.agents: list[subprocess.Popen[bytes] | Program] = []

    def start(
        self, failpoint: str = "", *options: str, **environment: str
    ) -> subprocess.Popen[bytes] | Program:
        """An Agent without the platform's database, Redis and SECRET_KEY."""
        inherited = {k: v for k, v in PLAIN.items() if not k.startswith(("SECRET_", "SMS_"))}
        log = self.folder / f"agent-{len(self.agents)}.log"
        with log.open("ab") as out:
            process = start_program(
                [sys.executable, "manage.py", "run_agent", "--intake", self.cluster.base_url,
                 "--key-file", str(self.key_file), *options],
                subprocess.DEVNULL, out,
                {**inherited, "AGENT_DATABASE_URL": self.shop.url, "LOG_LEVEL": "INFO",
                 "DATABASE_URL": "mysql://nobody@127.0.0.1:9/nothing",
                 "REDIS_URL": f"redis://127.0.0.1:{refusing_port()}/0",
                 "STATE_DIR": str(self.folder / "state"),
                 "MSGPLATFORM_FAILPOINT": failpoint, **environment},
            )  # fmt: skip
        self.agents.append(process)
        return process

    def until_empty(self) -> None:
        self.cluster.wait_until(lambda: not self.shop.column("id"), f"the Agent; {self.logs()}")

    def logs(self) -> str:
        return "\n".join(p.read_text()[-2000:] for p in sorted(self.folder.glob("agent-*.log")))

    def accepted(self) -> tuple[list[list[str]], list[str]]:
        rows, keys = self.cluster.script(ACCEPTED.format(name=self.name))
        return rows, keys


@contextmanager
def _running(system: System) -> Iterator[System]:
    try:
        yield system
    finally:
        for process in system.agents:
            process.kill()
            process.wait()


@pytest.fixture
def system(kind: str, cluster: Cluster, tmp_path: Path, mariadb: MariaDb) -> Iterator[System]:
    shop = Shop(kind, tmp_path, mariadb)
    shop.load_ddl()
    with _running(System(cluster, shop, tmp_path)) as made:
        yield made


def test_from_a_plain_insert_to_an_accepted_message(system: System) -> None:
    """As a JDBC program does it: a transaction, an INSERT of two columns, a commit."""
    with closing(system.shop.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE orders (number VARCHAR(20), state VARCHAR(10))")
        cursor.execute("INSERT INTO orders VALUES ('20261120-7', 'paid')")
        cursor.execute(
            "INSERT INTO outbox (event_type, payload) VALUES ('order.paid', '{ \"名\": 1.00}')"
        )
        connection.commit()
    (key,) = system.shop.column("msg_key")
    system.shop.execute(
        "INSERT INTO outbox (event_type, channel, msg_key, payload)"
        " VALUES ('bad type', 'eu', 'k', '1')"
    )
    process = system.start()
    system.until_empty()
    assert system.accepted() == ([["order.paid", "", '{ "名": 1.00}']], [key])
    assert system.shop.column("code", "outbox_dead") == ["invalid"]
    assert "order.paid" in system.shop.column("reason", "outbox_dead")[0], "what to write instead"
    process.terminate()
    assert process.wait(timeout=300) == 0


@pytest.mark.parametrize(
    ("failpoint", "sent", "kept"),
    [
        ("agent_after_claim", 0, 3),
        ("agent_after_send_before_delete", 2, 3),
        ("agent_dead_before_commit", 2, 3),
    ],
)
def test_killed_between_two_steps(system: System, failpoint: str, sent: int, kept: int) -> None:
    """Wherever it dies, the row is still there, and what the intake has it has once."""
    system.shop.insert(2)
    system.shop.execute("INSERT INTO outbox (event_type, payload) VALUES ('bad type', '1')")
    keys = system.shop.column("msg_key")[:2]
    process = system.start(failpoint)
    assert process.wait(timeout=300) == -9, system.logs()
    assert len(system.accepted()[0]) == sent
    assert len(system.shop.column("id")) == kept
    assert system.shop.column("id", "outbox_dead") == []
    system.shop.expire()  # as after a minute
    with relays(system.shop, system.cluster.base_url, key=system.key) as make:
        until_empty(make(), system.shop)
    rows, accepted = system.accepted()
    assert sorted(row[2] for row in rows) == ['{"n": 0}', '{"n": 1}']
    assert accepted == sorted(keys)
    assert len(system.shop.column("id", "outbox_dead")) == 1


def test_two_agents_killed_in_the_middle(system: System) -> None:
    """Rows go on being inserted, some rolled back, while Agents on the same outbox are killed."""
    count = 600
    for kill in range(KILLS):
        for n in (1, 2):
            system.start("", "--batch", "40", "--name", f"agent-{n}")
        for start in range(0, count // KILLS, 50):
            system.shop.insert(50, start=kill * (count // KILLS) + start)
            with closing(system.shop.connect()) as failing:
                failing.cursor().execute(
                    "INSERT INTO outbox (event_type, payload) VALUES ('order.lost', '0')"
                )
                failing.rollback()
        before = len(system.shop.column("id"))
        system.cluster.wait_until(
            lambda before=before: len(system.shop.column("id")) < before or not before,
            f"the Agents to be at work; {system.logs()}",
        )
        for process in system.agents[-2:]:
            process.kill()
            process.wait()
        system.shop.expire()
    system.start("", "--batch", "40")
    system.until_empty()
    rows, keys = system.accepted()
    assert sorted(row[2] for row in rows) == sorted(f'{{"n": {n}}}' for n in range(count))
    assert len(keys) == count
    assert system.shop.column("id", "outbox_dead") == []


@ANY_KIND
def test_an_intake_that_is_down_for_a_while(system: System) -> None:
    system.cluster.kill(WEB)
    system.shop.insert(20)
    process = system.start()
    system.cluster.wait_until(
        lambda: any(system.shop.column("last_error")), f"an attempt; {system.logs()}"
    )
    system.shop.insert(20, start=20)
    assert len(system.shop.column("id")) == 40
    assert set(system.shop.column("attempts")) == {0}
    system.cluster.start(WEB)
    system.until_empty()
    assert process.poll() is None
    assert len(system.accepted()[1]) == 40
    assert "agent_intake_away" in system.logs()
    assert "agent_intake_back" in system.logs()


@ANY_KIND
def test_a_key_is_replaced_while_the_agent_runs(system: System) -> None:
    good = system.key_file.read_text()
    system.key_file.write_text("mp_wrong")
    system.shop.insert(1)
    system.start()
    system.cluster.wait_until(
        lambda: any("401" in text for text in system.shop.column("last_error")), system.logs()
    )
    assert "mp_wrong" not in system.logs()
    system.key_file.write_text(f"\ufeff{good}")  # with a byte order mark, as Notepad does
    system.until_empty()


@ANY_KIND
def test_it_is_seen_where_the_platform_s_redis_is(system: System) -> None:
    redis = connect(system.cluster.redis_server.url)

    def seen() -> bool:
        names = [name.decode() for name in redis.hkeys("heartbeats")]
        return any(name.startswith(f"agent:{system.name}:") for name in names)

    system.start("", "--name", system.name, REDIS_URL=system.cluster.redis_server.url)
    system.cluster.wait_until(seen, system.logs())


@ANY_KIND
def test_an_unreachable_redis_costs_nothing(system: System) -> None:
    """TEST-NET-1 drops what is sent to it, here or at the first router: one attempt takes 2 s."""
    system.shop.insert(1)
    system.start("", "--batch", "1", REDIS_URL="redis://192.0.2.1:6379/0")
    system.until_empty()  # it has started
    begun = time.monotonic()
    system.shop.insert(200)
    system.until_empty()
    assert time.monotonic() - begun < 200, "an attempt for each row would take 400 s"


# -- options, in this process ---------------------------------------------------------------------
@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Runs an Agent with wrong options and variables; the sentence with which it ends."""
    monkeypatch.setattr(env, "problems", [])

    def run(*options: str, **variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(CommandError) as error:
            call_command("run_agent", *options)
        return str(error.value)

    yield run
    if ALIAS in connections.settings:
        del connections.settings[ALIAS]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--database", "postgres://u:secret@h/x"],
            "--database or AGENT_DATABASE_URL: the database's URL is neither",
        ),
        (["--database", "mysql://u:secret@h:3306/"], "names no database"),
        (
            ["--database", "sqlite:////tmp/x", "--intake", "ftp://h"],
            "--intake or AGENT_INTAKE_URL: The URL does not",
        ),
        (["--database", "sqlite:////tmp/x", "--batch", "0"], "--batch must be from 1 to 1000"),
        (
            ["--database", "sqlite:////tmp/x", "--metrics", "9"],
            "--metrics or AGENT_METRICS: use HOST:PORT",
        ),
        (["--database", "sqlite:////tmp/x", "--key-file", "/nowhere"], "--key-file: /nowhere"),
        ([], "--database or AGENT_DATABASE_URL: name the business system's database"),
    ],
)
def test_wrong_options_are_answered_in_a_sentence(
    options: list[str], says: str, refusal: Callable[..., str]
) -> None:
    sentence = refusal(*options, AGENT_API_KEY="mp_x")
    assert says in sentence
    assert "secret" not in sentence


def test_a_port_for_figures_that_is_taken(refusal: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ["--database", "sqlite:////tmp/x", "--metrics", metrics]
        sentence = refusal(*options, AGENT_API_KEY="mp_x")
    assert (
        f"--metrics or AGENT_METRICS: {metrics} cannot be used: Address already in use" in sentence
    )


def test_a_key_file_that_cannot_be_read(refusal: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "no"
    sentence = refusal("--database", "sqlite:////tmp/x", AGENT_API_KEY_FILE=str(file))
    assert "AGENT_API_KEY_FILE=" in sentence
    assert "cannot be read" in sentence


# -- its end as a process, without a traceback -----------------------------------------------------
def _ended(folder: Path, database: str, **variables: str) -> str:
    """What an Agent that does not start wrote."""
    process = subprocess.run(
        [sys.executable, "manage.py", "run_agent", "--database", database],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**PLAIN, "STATE_DIR": str(folder), **variables},
    )  # fmt: skip
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert "secret" not in process.stderr
    return process.stderr


def test_a_missing_driver_is_told_with_its_repair(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text('import sys; sys.modules["MySQLdb"] = None\n')
    variables = {"AGENT_API_KEY": "mp_x", "PYTHONPATH": str(tmp_path)}
    errors = _ended(tmp_path, "mysql://u:secret@h:3306/x", **variables)
    assert "python3 deploy/bootstrap.py platform mysql" in errors


def test_no_key(tmp_path: Path) -> None:
    errors = _ended(tmp_path, "sqlite:////tmp/x")
    assert "--key-file: no API key: name a file, or set AGENT_API_KEY" in errors
