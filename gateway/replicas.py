"""The replicas of the SMS Redis: what makes an acknowledged message, or a failover, unsafe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from gateway.connections import SMS, sms_redis
from msgplatform.core.connections import RedisError, ResponseError
from msgplatform.core.flows import Finding

_MIN_REPLICAS = "min-replicas-to-write"


def problems(info: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """`info` is the INFO of the SMS Redis. Raises RedisError when that server does not answer."""
    if info.get("role") == "slave":
        yield Error(
            "SMS_REDIS_URL names a replica, which takes no writes",
            hint="Name the address of HAProxy, which finds the master, see docs/scale.md.",
            obj="SMS_REDIS_URL",
            id="gateway.E219",
        )
        return
    replicas = connected(info)
    if len(replicas) < settings.SMS_REPLICAS:
        yield Error(
            f"SMS_REPLICAS is {settings.SMS_REPLICAS}, and {len(replicas)} replicas are connected "
            "to the SMS Redis: no request is confirmed, every one is answered with outcome-unknown",
            hint=f"Start its replicas, or set SMS_REPLICAS={len(replicas)} for every program.",
            obj="SMS_REPLICAS",
            id="gateway.E215",
        )
    yield from _min_replicas()
    for replica in replicas:
        yield from _replica(str(replica["ip"]), int(replica["port"]))


def connected(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The replicas that have all data and follow their master."""
    named = (value for name, value in info.items() if name.removeprefix("slave").isdigit())
    return [one for one in named if isinstance(one, Mapping) and one.get("state") == "online"]


def _min_replicas() -> Iterator[CheckMessage]:
    options: Any = {}
    with suppress(ResponseError):  # a hosted Redis may forbid CONFIG
        options = sms_redis().config_get(_MIN_REPLICAS)
    if int(options.get(_MIN_REPLICAS, settings.SMS_REPLICAS)) < settings.SMS_REPLICAS:
        yield Warning(
            f"the SMS Redis goes on without replicas ({_MIN_REPLICAS} {options[_MIN_REPLICAS]}), "
            f"and SMS_REPLICAS is {settings.SMS_REPLICAS}",
            hint=f"Set `{_MIN_REPLICAS} {settings.SMS_REPLICAS}` and `min-replicas-max-lag 2` on "
            "each of its servers: without replicas it then refuses a message, instead of storing "
            "it with an unknown outcome.",
            obj="SMS_REDIS_URL",
            id="gateway.W216",
        )


def _replica(host: str, port: int) -> Iterator[CheckMessage]:
    """A replica becomes the master when the master dies; its file must then have every message."""
    try:
        info: Any = SMS.server_client(host, port).info("persistence")
    except RedisError as error:
        yield Warning(
            f"the replica {host}:{port} of the SMS Redis cannot be asked from here: "
            f"{type(error).__name__}; whether it keeps messages on disk is unknown",
            hint="Verify on its machine: redis-cli CONFIG GET append* says `appendonly yes` and "
            "`appendfsync always`.",
            obj="SMS_REDIS_URL",
            id="gateway.W218",
        )
        return
    if str(info.get("aof_enabled")) == "0":
        yield Error(
            f"the replica {host}:{port} of the SMS Redis keeps nothing on disk (appendonly no)",
            hint="Set `appendonly yes` and `appendfsync always` there: it becomes the master when "
            "the master dies.",
            obj="SMS_REDIS_URL",
            id="gateway.E217",
        )


def examine() -> Iterator[Finding]:
    """Lines for `doctor`; none for a Redis without replicas that needs none. Raises RedisError."""
    info: Any = sms_redis().info()
    count = len(connected(info))
    if not count and not settings.SMS_REPLICAS and info.get("role") != "slave":
        return
    is_good = True
    for problem in problems(info):
        is_good = False
        level: Any = "bad" if isinstance(problem, Error) else "warn"
        yield Finding(level, str(problem.msg), str(problem.hint or ""))
    if is_good:
        text = f"SMS_REDIS_URL: {count} replicas (SMS_REPLICAS={settings.SMS_REPLICAS})"
        yield Finding("ok", text)
