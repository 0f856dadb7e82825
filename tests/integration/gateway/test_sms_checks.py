"""What `check --database default` and `check --deploy` say about SMS."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core import checks as django_checks

from gateway import checks
from gateway.models import SmsAccount, SmsGateway
from msgplatform import env
from msgplatform.core.servers.private_server import RedisServer
from msgplatform.operation import doctor
from tests.program_host import run_program
from tests.support import sms_rows
from tests.support.sms_rows import Caller, account, gateway

shop = sms_rows.shop
pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


def test_an_address_of_ipv6_stands_in_brackets_before_its_port() -> None:
    assert SmsGateway(host="2001:db8::1", port=8801).address == "[2001:db8::1]:8801"
    assert SmsGateway(host="smg.test", port=8801).address == "smg.test:8801"


@pytest.fixture
def other_redis(tmp_path: Path, settings: Any) -> Iterator[Any]:
    """A Redis of its own, whose configuration a test may change."""
    from gateway.connections import sms_redis

    server = RedisServer(tmp_path / "redis", tmp_path / "r.sock", appendonly=True)
    server.start()
    settings.SMS_REDIS_URL = server.url
    settings.SMS_REDIS_EMBEDDED = False
    yield sms_redis()
    server.kill()


def ids_of(found: list[Any]) -> list[str]:
    return [message.id for message in found]


def test_a_good_platform_hears_nothing(shop: Caller, other_redis: Any) -> None:
    assert checks.sms_check(None, databases=["default"]) == []


def test_no_server_is_asked_by_a_plain_check(shop: Caller, settings: Any) -> None:
    settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
    assert checks.sms_check(None) == []
    found = [m for m in django_checks.run_checks() if str(m.id).startswith("gateway.")]
    assert found == []


@pytest.mark.parametrize(
    ("option", "value", "id"),
    [
        ("appendonly", "no", "gateway.E202"),
        ("maxmemory-policy", "allkeys-lru", "gateway.E203"),
        ("appendfsync", "everysec", "gateway.E204"),
        ("appendfsync", "no", "gateway.E204"),
        ("no-appendfsync-on-rewrite", "yes", "gateway.E204"),
    ],
)
def test_a_redis_that_may_forget(
    shop: Caller, other_redis: Any, option: str, value: str, id: str
) -> None:
    other_redis.config_set(option, value)
    (message,) = checks.redis_check()
    assert message.id == id
    assert option in message.msg
    assert message.hint


def deployed(url: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check --deploy` as an operator runs it, with this SMS Redis."""
    command = [sys.executable, "manage.py", "check", "--deploy"]
    return run_program(command, {**os.environ, "SMS_REDIS_URL": url})


def test_a_deployment_needs_every_answer_on_disk(other_redis: Any, settings: Any) -> None:
    good = deployed(settings.SMS_REDIS_URL)
    assert (good.returncode, "gateway." in good.stderr) == (0, False), good.stderr
    other_redis.config_set("appendfsync", "everysec")
    refused = deployed(settings.SMS_REDIS_URL)
    assert refused.returncode == 1
    assert "gateway.E204" in refused.stderr
    assert "redis-cli CONFIG SET appendfsync always" in refused.stderr


def test_a_deployment_is_judged_once(other_redis: Any) -> None:
    other_redis.config_set("appendfsync", "everysec")
    found = django_checks.run_checks(include_deployment_checks=True, databases=["default"])
    assert ids_of(found).count("gateway.E204") == 1


@pytest.fixture
def forbids_config(other_redis: Any, settings: Any) -> None:
    """From here on the platform is a user who may not read the configuration."""
    other_redis.execute_command(
        "ACL", "SETUSER", "platform", "on", ">pass", "~*", "&*", "+@all", "-config"
    )
    socket = settings.SMS_REDIS_URL.removeprefix("unix://")
    settings.SMS_REDIS_URL = f"unix://platform:pass@{socket}"


@pytest.mark.usefixtures("forbids_config")
def test_a_redis_that_forbids_config(shop: Caller) -> None:
    (message,) = checks.redis_check()
    assert (message.id, message.level) == ("gateway.W209", django_checks.WARNING)
    for option in ("appendfsync", "no-appendfsync-on-rewrite"):
        assert option in str(message.hint)
    (finding,) = [f for f in doctor.examine() if "SMS_REDIS_URL: CONFIG" in f.what]
    assert finding.level == "warn"
    assert "appendfsync always" in finding.repair


def test_doctor_says_how_the_redis_writes(shop: Caller, other_redis: Any) -> None:
    def found() -> list[tuple[str, str]]:
        return [
            (f.level, f.what)
            for f in doctor.examine()
            if f.what.startswith("SMS_REDIS_URL") and "accepted messages" in f.what
        ]

    assert found() == [("ok", "SMS_REDIS_URL: accepted messages are kept (appendfsync always)")]
    other_redis.config_set("appendfsync", "everysec")
    ((level, what),) = found()
    assert (level, "(appendfsync everysec)" in what) == ("bad", True)


def test_the_redis_of_the_compose_file_is_good(tmp_path: Path, settings: Any) -> None:
    """Its own command line, on a socket of this test."""
    compose = yaml.safe_load((env.BASE_DIR / "deploy" / "compose.yaml").read_text())
    command = compose["services"]["redis-sms"]["command"]
    server = RedisServer(tmp_path / "redis", tmp_path / "r.sock")
    place = ["--dir", str(server.directory), "--port", "0", "--unixsocket", str(server.socket)]
    settings.SMS_REDIS_URL = server.url
    settings.SMS_REDIS_EMBEDDED = False
    server.prepare()
    with subprocess.Popen([*command, *place], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while not server.answers():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert checks.redis_check() == []
        finally:
            process.kill()


def test_a_redis_that_is_away(shop: Caller, settings: Any) -> None:
    settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
    assert ids_of(checks.redis_check()) == ["gateway.W201"]


def test_gateways_that_contradict_each_other(shop: Caller) -> None:
    gateway("second", host="10.0.0.2", smg_login_name="other")
    assert ids_of(checks.rows_check()) == ["gateway.W206"]
    # Two connections to one operator's host are its own business.
    SmsGateway.objects.filter(name="second").update(host="127.0.0.1")
    assert checks.rows_check() == []
    SmsGateway.objects.filter(name="second").update(smg_login_name="smg", node_id=7)
    (message,) = checks.rows_check()
    assert message.id == "gateway.W207"
    assert "its-secret" not in message.msg + str(message.hint)
    SmsGateway.objects.filter(name="second").update(enabled=False)
    assert checks.rows_check() == []


def test_an_area_code_that_gives_no_node_id(shop: Caller) -> None:
    gateway("second", host="10.0.0.2", smg_login_name="other", area_code="755")
    (message,) = checks.rows_check()
    assert (message.id, "second" in message.msg) == ("gateway.E212", True)
    SmsGateway.objects.filter(name="second").update(node_id=7)
    assert checks.rows_check() == []


def test_a_gateway_that_waits_longer_than_the_archive(shop: Caller, settings: Any) -> None:
    settings.SMS_ARCHIVE_DAYS, settings.SMS_SCHEDULE_DAYS = 34, 30
    assert checks.rows_check() == []
    SmsGateway.objects.update(report_hours=80)
    (message,) = checks.rows_check()
    assert (message.id, message.level) == ("gateway.W214", django_checks.WARNING)
    assert "unicom" in message.msg
    assert "to 35 or more" in str(message.hint)
    for days in (35, 0):
        settings.SMS_ARCHIVE_DAYS = days
        assert checks.rows_check() == []


def test_a_default_account_that_is_not_there(shop: Caller, settings: Any) -> None:
    settings.SMS_DEFAULT_ACCOUNT = "marketing"
    assert checks.rows_check() == []
    for name, enabled in (("marketting", True), ("marketing", False)):
        settings.SMS_DEFAULT_ACCOUNT = name
        SmsAccount.objects.update(enabled=enabled)
        (message,) = checks.rows_check()
        assert (message.id, message.level) == ("gateway.W213", django_checks.WARNING)
        assert name in message.msg


def test_two_defaults_of_one_system(shop: Caller) -> None:
    account(shop.biz, "notices")
    (message,) = checks.rows_check()
    assert (message.id, "marketing, notices" in message.msg) == ("gateway.W208", True)
