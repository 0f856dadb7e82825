"""The demo must never reach what an installation's own variables name."""

import threading
from pathlib import Path
from typing import Any

import pytest

from demo.notify.scenario import SCENARIO, SCHEDULE
from demo.run import Trickle
from demo.show import configures, table, write_encryption_key
from msgplatform.core.secrets import encryption
from notify.subscriptions import limits


@pytest.mark.parametrize(
    "name",
    ["DATABASE_URL", "DATABASE_URL_FILE", "COLD_DATABASE_URL_FILE", "REDIS_URL", "REDIS_URL_FILE",
     "SMS_REDIS_URL_FILE", "SMS_RECEIVER_PORT", "SECRET_KEY_FILE",
     "ENCRYPTION_KEY_FILE", "DEBUG", "OUTBOUND_PROXY",
     "ALLOWED_HOSTS", "API_RATE_WRITE", "METRICS_TOKEN_FILE"],
)  # fmt: skip
def test_left_out(name: str) -> None:
    assert configures(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "VIRTUAL_ENV", "LOG_LEVEL"])
def test_kept(name: str) -> None:
    assert not configures(name)


def test_it_has_an_encryption_key_of_its_own(tmp_path: Path) -> None:
    write_encryption_key(tmp_path)
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("encryption_key", 0o600)
    assert encryption.is_usable([file.read_text().strip()])


def test_what_waits_for_the_dead_consumer_is_given_up_within_the_demo(settings: Any) -> None:
    for name, value in SCENARIO.environment().items():
        setattr(settings, name, float(value))
    assert limits.breaker_keep(SCHEDULE) + settings.NOTIFY_BREAKER_SECONDS < 30


def test_the_table_says_what_is_wrong() -> None:
    good, bad = {"accepted": 3, "lost": 0, "problem": ""}, {"accepted": 2, "problem": "one is late"}
    _head, *lines = table(
        {"flows": {"sms": good, "notify": bad}, "errors": ["run_maker.log: turn_failed (2): boom"]}
    ).splitlines()
    assert [line.split() for line in lines] == [
        ["sms", "3", "0"], ["notify", "2"], ["notify:", "one", "is", "late"],
        ["an", "error", "was", "logged:", "run_maker.log:", "turn_failed", "(2):", "boom"],
    ]  # fmt: skip


def test_the_table_adds_up() -> None:
    sms = {"accepted": 5000, "copies": 8982, "delivered": 4500, "failed": 500, "lost": 0}
    notify = {"accepted": 9, "copies": 20, "delivered": 15, "exhausted": 5, "lost": 0}
    result = {"flows": {"sms": sms, "notify": notify}, "errors": []}
    head, *lines = table(result).splitlines()
    assert "failed on purpose" in head
    assert [line.split() for line in lines] == [
        ["sms", "5000", "8982", "4500", "500", "0"], ["notify", "9", "20", "15", "5", "0"],
    ]  # fmt: skip
    assert len({len(line.rstrip()) for line in lines}) == 1, "the columns are below their titles"


def test_a_step_that_fails_comes_again_and_none_is_left_out() -> None:
    steps, enough = list[int](), threading.Event()

    def step(number: int) -> None:
        steps.append(number)
        if len(steps) == 2:
            raise RuntimeError("the platform was away for a moment")
        if number == 3:
            enough.set()

    trickle = Trickle("test", step, 0.001)
    trickle.start()
    assert enough.wait(60)
    trickle.stop()
    assert steps[:5] == [0, 1, 1, 2, 3]
