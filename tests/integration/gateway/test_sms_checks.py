"""What `check --database default` says about SMS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks

from gateway import checks
from gateway.models import SmsGateway
from msgplatform.core.servers.embedded import RedisServer
from tests.integration.support import sms_rows
from tests.integration.support.sms_rows import Caller, account, gateway

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


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
        ("appendfsync", "no", "gateway.W204"),
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


def test_two_defaults_of_one_system(shop: Caller) -> None:
    account(shop.biz, "notices")
    (message,) = checks.rows_check()
    assert (message.id, "marketing, notices" in message.msg) == ("gateway.W208", True)
