"""System checks of SMS: what its Redis must be, and gateways that contradict each other.

gateway.E0xx a wrong setting · E2xx, W2xx seen by `check --database default`, which asks servers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from gateway import sgip
from gateway.connections import sms_redis
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core.connections import RedisError

# The bound that redis-py and our scripts need.
OLDEST_REDIS = (6, 2)


@register(Tags.database)
def sms_check(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Asks the SMS Redis and the database, so only when servers are to be asked."""
    if not databases:
        return []
    return [*redis_check(), *rows_check()]


def redis_check() -> list[CheckMessage]:
    """What the SMS Redis is configured to; one that forbids CONFIG is asked in INFO."""
    try:
        found = _redis_facts()
    except RedisError as error:
        return [
            Warning(
                f"SMS_REDIS_URL does not answer: {type(error).__name__}",
                hint="Start it; until then no message is accepted.",
                obj="SMS_REDIS_URL",
                id="gateway.W201",
            )
        ]
    return list(_judged(found))


def _redis_facts() -> dict[str, str]:
    client = sms_redis()
    info: Any = client.info()
    return {
        "version": str(info.get("redis_version", "")),
        "aof": str(info.get("aof_enabled", "")),
        "policy": str(info.get("maxmemory_policy", "")),
        "fsync": str(_config(client, "appendfsync")),
    }


def _config(client: Any, name: str) -> str:
    try:
        return str(client.config_get(name).get(name, ""))
    except RedisError:  # a hosted Redis may forbid it
        return ""


def _judged(found: dict[str, str]) -> Iterator[CheckMessage]:
    if found["aof"] == "0" and not settings.SMS_REDIS_EMBEDDED:
        yield Error(
            "the SMS Redis keeps nothing on disk (appendonly no)",
            hint="Set `appendonly yes` there: until the archive is written it is the only place "
            "that knows a message.",
            obj="SMS_REDIS_URL",
            id="gateway.E202",
        )
    if found["policy"] not in ("", "noeviction"):
        yield Error(
            f"the SMS Redis may throw messages away (maxmemory-policy {found['policy']})",
            hint="Set `maxmemory-policy noeviction` there.",
            obj="SMS_REDIS_URL",
            id="gateway.E203",
        )
    if found["aof"] == "1" and found["fsync"] == "no":
        yield Warning(
            "the SMS Redis leaves it to the system when its file reaches the disk (appendfsync no)",
            hint="Set `appendfsync everysec` (a power cut costs a second) or `always`.",
            obj="SMS_REDIS_URL",
            id="gateway.W204",
        )
    if _version(found["version"]) < OLDEST_REDIS:
        yield Error(
            f"the SMS Redis is version {found['version']}",
            hint="Use Redis 6.2 or later, or Valkey.",
            obj="SMS_REDIS_URL",
            id="gateway.E205",
        )


def _version(text: str) -> tuple[int, ...]:
    parts = [int(part) for part in text.split(".")[:2] if part.isdigit()]
    return tuple(parts) or OLDEST_REDIS


def rows_check() -> list[CheckMessage]:
    """Gateways and accounts that cannot work as they are. Nothing before the tables are there."""
    try:
        gateways = list(SmsGateway.objects.filter(enabled=True))
        accounts = list(SmsAccount.objects.filter(enabled=True))
    except DatabaseError:
        return []
    return [*_shared_nodes(gateways), *_shared_logins(gateways), *_shared_defaults(accounts)]


def _shared_nodes(gateways: Sequence[SmsGateway]) -> Iterator[CheckMessage]:
    """A Report names our node id and a counter: two operators may answer with the same one."""
    hosts: dict[int, dict[str, str]] = defaultdict(dict)
    for row in gateways:
        node = row.node_id
        node = sgip.sp_node_id(row.area_code, row.corp_id) if node is None else node
        hosts[node][row.host] = row.name
    for node, names in hosts.items():
        if len(names) > 1:
            yield Warning(
                f"gateways on different hosts have the node id {node}: {_listed(names.values())}",
                hint="Right when one operator gave you both; otherwise give each its own node id.",
                id="gateway.W206",
            )


def _shared_logins(gateways: Sequence[SmsGateway]) -> Iterator[CheckMessage]:
    """An SMG that binds to us is known by its login name and password alone."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in gateways:
        names[row.smg_login_name, row.smg_login_password].append(row.name)
    for found in names.values():
        if len(found) > 1:
            yield Warning(
                f"SMGs bind to us with the same name and password: {_listed(found)}",
                hint="Which of them a Report comes from is then not known; let them differ.",
                id="gateway.W207",
            )


def _shared_defaults(accounts: Sequence[SmsAccount]) -> Iterator[CheckMessage]:
    names: dict[int, list[str]] = defaultdict(list)
    for row in accounts:
        if row.is_default:
            names[row.biz_id].append(row.name)
    for found in names.values():
        if len(found) > 1:
            yield Warning(
                f"several accounts are the default of one system: {_listed(found)}",
                hint="Leave `default` on for one of them.",
                id="gateway.W208",
            )


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))
