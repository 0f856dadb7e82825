"""The replicas of the SMS Redis: problems that make acknowledged messages or a failover unsafe, and
the alert for missing replicas."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.utils.translation import gettext_noop as _

from gateway.connections import SMS, sms_redis
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import RedisError, ResponseError
from msgplatform.core.flows.health import Finding
from msgplatform.core.http.addresses import bracketed
from msgplatform.monitor.alert_store import AlertTable

MISSING = "sms.replicas"  # the kind of the alert
# Seconds that replicas may be missing, as during a restart, and after which a connected replica
# that confirms nothing also counts as missing.
MISSING_SECONDS = 10.0
# After so many seconds without a look this process does not know how long replicas were missing.
_FORGET_SECONDS = 60.0
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
    replicas = online_replicas(info)
    if len(replicas) < settings.SMS_REPLICAS:
        yield Error(
            f"SMS_REPLICAS is {settings.SMS_REPLICAS}, and {len(replicas)} replicas are connected "
            "to the SMS Redis: no request is confirmed, every one is answered with outcome-unknown",
            hint=f"Start its replicas, or set SMS_REPLICAS={len(replicas)} for every program.",
            obj="SMS_REPLICAS",
            id="gateway.E215",
        )
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
    for replica in replicas:
        # A replica becomes the master when the master dies: its file must then have every message.
        host, port = str(replica["ip"]), int(replica["port"])
        place = f"{bracketed(host)}:{port}"
        try:
            persistence: Any = SMS.server_client(host, port).info("persistence")
        except RedisError as error:
            yield Warning(
                f"the replica {place} of the SMS Redis cannot be asked from here: "
                f"{type(error).__name__}; whether it keeps messages on disk is unknown",
                hint="Verify on its machine: redis-cli CONFIG GET append* says `appendonly yes` "
                "and `appendfsync always`.",
                obj="SMS_REDIS_URL",
                id="gateway.W218",
            )
            continue
        if str(persistence.get("aof_enabled")) == "0":
            yield Error(
                f"the replica {place} of the SMS Redis keeps nothing on disk (appendonly no)",
                hint="Set `appendonly yes` and `appendfsync always` there: it becomes the master "
                "when the master dies.",
                obj="SMS_REDIS_URL",
                id="gateway.E217",
            )


def online_replicas(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The replicas that have all data and follow their master."""
    replicas = (value for name, value in info.items() if name.removeprefix("slave").isdigit())
    return [
        replica
        for replica in replicas
        if isinstance(replica, Mapping) and replica.get("state") == "online"
    ]


class Shortage:
    """The time for which replicas have been missing, as far as this process has looked. Redis
    cannot keep it: without replicas it may refuse writes."""

    def __init__(self) -> None:
        self._since = self._looked_at = -_FORGET_SECONDS  # monotonic

    def conditions(self) -> Iterator[Condition]:
        """The alert for missing replicas, if it holds. Raises RedisError."""
        info: Any = sms_redis().info("replication")
        count = sum(replica.get("lag", 0) < MISSING_SECONDS for replica in online_replicas(info))
        now = time.monotonic()
        if count >= settings.SMS_REPLICAS or now - self._looked_at > _FORGET_SECONDS:
            self._since = now
        self._looked_at = now
        if count >= settings.SMS_REPLICAS:
            return
        # An open alert does not end because another process has looked until now.
        if now - self._since >= MISSING_SECONDS or AlertTable().open_keys(MISSING):
            yield Condition.of(
                f"{MISSING}:redis",
                _("Replicas of the SMS Redis are missing"),
                _(
                    "%(count)d of %(replicas)d replicas are connected (SMS_REPLICAS). Until "
                    "they are back, short messages are answered with 503 (unavailable or "
                    "outcome-unknown), no Submit is written to a gateway, and Reports and MOs "
                    "are refused. Start the replicas, and see their logs if they do not "
                    "connect."
                ),
                count=count,
                replicas=settings.SMS_REPLICAS,
            )


def examine() -> Iterator[Finding]:
    """Lines for `doctor`; none for a Redis that needs and has no replicas. Raises RedisError."""
    info: Any = sms_redis().info()
    count = len(online_replicas(info))
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
