"""Each kind of alert: a real program raises it, it says what matters, goes out, and is over.

The programs have settings of their own, without pages. Whoever adds a kind adds an incident.
"""

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import RedisServer, free_port
from tests.programs.alerts.crm_incidents import WITHOUT_PROGRAMS
from tests.programs.alerts.stage import PROGRAMS, Stage, of
from tests.redis_client import connect

# Incidents of processes; the test itself makes them.
SILENT, REDIS, CLOCK = "platform.silent", "platform.redis", "notify.clock"
OF_PROCESSES = {
    SILENT: r"run_bulk does not run.*Start it again",
    REDIS: r"SMS_REDIS_URL does not answer",
    CLOCK: r"By \+60 seconds",
}
# Kinds that no program can be brought to raise here, and why.
NOT_STAGED = {
    "platform.galera": "it needs a cluster of databases: tests/scale/test_galera.py",
    "sms.replicas": "no other incident of SMS is possible meanwhile: the last test of this module",
}
SECONDS = 600.0


@pytest.fixture(scope="module")
def stage(mariadb: MariaDb) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="mp-alert-"))  # short: a socket's path is bounded
    with Stage(folder, mariadb) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def missing(stage: Stage, says: Mapping[str, str]) -> dict[str, str]:
    """Kinds without an alert that says what it should, and what it says instead."""
    rows, events = stage.alerts()
    by_kind = of(rows)
    wrong = {}
    for kind, pattern in says.items():
        texts = [f"{row['subject']} {row['text']}" for row in by_kind.get(kind, ())]
        if not any(re.search(pattern, text, re.DOTALL) for text in texts):
            wrong[kind] = f"not {pattern!r}: {texts}"
        elif ("platform.alert", kind) not in events:
            wrong[kind] = "it was not published"
    return wrong


def still_open(stage: Stage, kinds: Collection[str]) -> dict[str, str]:
    """Kinds with an open alert, or whose end was not published."""
    rows, events = stage.alerts()
    wrong = {}
    for kind, alerts in of(rows).items():
        if kind in kinds:
            if kept := [row["key"] for row in alerts if row["open_key"]]:
                wrong[kind] = f"open: {kept}"
            elif ("platform.alert.resolved", kind) not in events:
                wrong[kind] = "its end was not published"
    return wrong


def expect_nothing(look: Callable[[], dict[str, str]]) -> None:
    """Wait until `look` finds nothing wrong."""
    deadline = time.monotonic() + SECONDS
    while wrong := look():
        assert time.monotonic() < deadline, "\n".join(f"{k}: {v}" for k, v in wrong.items())
        time.sleep(1)  # a look reads every alert and every event


def test_every_kind_is_raised_says_why_goes_out_and_ends(stage: Stage) -> None:
    incidents = stage.incidents()
    says = {kind: pattern for kind, (pattern, _, _) in incidents.items()} | OF_PROCESSES
    assert stage.kinds() == says.keys() | NOT_STAGED.keys()
    of_person = {kind for kind, (_, is_for_person, _) in incidents.items() if is_for_person}
    second = {kind for kind, (_, _, act) in incidents.items() if act == 2}
    first = says.keys() - second - {REDIS}
    stage.wait_until(lambda: stage.redis.hlen("platform:seen") == len(PROGRAMS), "all programs")
    stage.kill("run_bulk")
    stage.start_with_wrong_clock("run_maker", 60)
    stage.happen(1)
    expect_nothing(lambda: missing(stage, {kind: says[kind] for kind in first}))

    stage.start("run_bulk")
    stage.kill("run_maker-ahead")
    stage.restart("run_maker")
    stage.repair()
    expect_nothing(lambda: still_open(stage, first - of_person))

    stage.happen(2)
    expect_nothing(lambda: missing(stage, {kind: says[kind] for kind in second}))
    stage.repair()
    expect_nothing(lambda: still_open(stage, second))

    stage.sms_server.kill()
    expect_nothing(lambda: missing(stage, {REDIS: says[REDIS]}))
    stage.sms_server.start()
    expect_nothing(lambda: still_open(stage, {REDIS}))


def test_alerts_about_subscriptions_need_no_program_of_notify(stage: Stage) -> None:
    """The watch of any other program raises them, publishes them, and resolves them."""
    for name in ("run_maker", "run_sender", "run_marker", "run_archiver"):
        stage.kill(name)
    keys = set(stage.break_subscriptions())
    expect_nothing(lambda: dict.fromkeys(keys - stage.open_keys(), "no alert"))
    stage.mend_subscriptions()
    expect_nothing(lambda: dict.fromkeys(keys & stage.open_keys(), "open"))
    for name in ("run_maker", "run_sender", "run_marker", "run_archiver"):
        stage.start(name)


def test_alerts_of_crm_sync_while_its_programs_do_not_run(stage: Stage) -> None:
    """The watch of any program looks the conditions up."""
    stage.kill("run_sync_poller")
    stage.kill("run_sync_handler")
    stage.begin_without_programs()
    expect_nothing(lambda: missing(stage, WITHOUT_PROGRAMS))
    stage.end_without_programs()
    expect_nothing(lambda: still_open(stage, WITHOUT_PROGRAMS))


def test_replicas_of_the_sms_redis_that_are_missing() -> None:
    """They are raised for, published and resolved by the watch of a program that needs no SMS."""
    folder = Path(tempfile.mkdtemp(prefix="mp-alert-"))
    stage = Stage(folder, None, ("run_bulk",))
    stage.sms_server = RedisServer(
        folder / "sms", folder / "sms.sock", port=free_port(), appendonly=True
    )
    stage.environment |= {"SMS_REDIS_URL": stage.sms_server.url, "SMS_REPLICAS": "1"}
    replica = RedisServer(folder / "replica", folder / "replica.sock", appendonly=True)
    says = {"sms.replicas": r"0 of 1 replicas are connected.*no Submit is written"}
    with stage:
        expect_nothing(lambda: missing(stage, says))
        replica.start()
        connect(replica.url).execute_command("REPLICAOF", "127.0.0.1", stage.sms_server.port)
        expect_nothing(lambda: still_open(stage, says))
        # A replica that hangs stays connected.
        assert replica.pid
        os.kill(replica.pid, signal.SIGSTOP)
        expect_nothing(lambda: {} if "sms.replicas:redis" in stage.open_keys() else {"it": "hangs"})
        os.kill(replica.pid, signal.SIGCONT)
        expect_nothing(lambda: still_open(stage, says))
        replica.kill()
    shutil.rmtree(folder, ignore_errors=True)
