"""System checks of SMS: settings of its Redis, and gateways that contradict each other.

E2xx, W2xx are seen by `check --database default`, which asks servers; those about the Redis also by
`check --deploy`.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_network
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from gateway import notifications, replicas
from gateway.connections import sms_redis
from gateway.models import SmsAccount, SmsGateway
from gateway.monitor import failures
from msgplatform import env
from msgplatform.core.connections import RedisError, ResponseError
from msgplatform.core.errors import Undecryptable

# The minimum version for redis-py and our scripts.
MIN_REDIS = (6, 2)
REPORT_HOURS = float(SmsGateway._meta.get_field("report_hours").get_default())


@register(env.CHECKS_TAG)
def archive_outlasts_resending(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The archive must keep a message for as long as it may be resent, and longer than the message
    needs to get there. `rows_check` knows gateways that wait longer for a Report."""
    days, min_days = settings.SMS_ARCHIVE_DAYS, _min_archive_days(REPORT_HOURS)
    if days == 0 or days >= min_days:
        return []
    return [
        Error(
            f"SMS_ARCHIVE_DAYS={days} is too short: messages may be sent again for "
            f"{failures.MAX_RESEND_DAYS} days, and scheduled {settings.SMS_SCHEDULE_DAYS} days "
            f"ahead; then they wait {REPORT_HOURS:g} hours for a Report",
            hint=f"Set SMS_ARCHIVE_DAYS to {min_days} or more, or to 0 (kept for ever).",
            obj="SMS_ARCHIVE_DAYS",
            id="gateway.E001",
        )
    ]


def _min_archive_days(report_hours: float) -> int:
    """A day longer than a message may take until it is archived or too old to be resent."""
    days_to_archive: int = settings.SMS_SCHEDULE_DAYS + math.ceil(report_hours / 24)
    return 1 + max(failures.MAX_RESEND_DAYS, days_to_archive)


@register(Tags.database)
def sms_check(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Asks the SMS Redis and the database, so only when servers are to be asked."""
    if not databases:
        return []
    return [*redis_check(), *rows_check()]


@register(Tags.security, deploy=True)
def deploy_check(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Asks the SMS Redis, unless `sms_check` does so anyway or the embedded one is used."""
    return [] if databases or settings.SMS_REDIS_EMBEDDED else redis_check()


def redis_check() -> list[CheckMessage]:
    """Errors if the SMS Redis, or a replica that may take over, can lose a write after answering
    it. A warning if settings cannot be read."""
    try:
        client: Any = sms_redis()
        info = client.info()
        options = {
            "version": str(info.get("redis_version", "")),
            "aof": str(info.get("aof_enabled", "")),
            "policy": str(info.get("maxmemory_policy", "")),
        }
        # A hosted Redis may forbid CONFIG. One pattern for both options: Redis 6.2 takes no second.
        with suppress(ResponseError):
            options |= client.config_get("*appendfsync*")
        replica_problems = list(replicas.problems(info))
    except RedisError as error:
        return [
            Warning(
                f"SMS_REDIS_URL does not answer: {type(error).__name__}",
                hint="Start it, then check again; until then no message is accepted.",
                obj="SMS_REDIS_URL",
                id="gateway.W201",
            )
        ]
    return [*_judge_options(options), *replica_problems]


def _judge_options(options: dict[str, str]) -> Iterator[CheckMessage]:
    if options["aof"] == "0" and not settings.SMS_REDIS_EMBEDDED:
        yield Error(
            "the SMS Redis keeps nothing on disk (appendonly no)",
            hint="Set `appendonly yes` there: until the archive is written it is the only place "
            "that knows a message.",
            obj="SMS_REDIS_URL",
            id="gateway.E202",
        )
    if options["policy"] not in ("", "noeviction"):
        yield Error(
            f"the SMS Redis may evict messages (maxmemory-policy {options['policy']})",
            hint="Set `maxmemory-policy noeviction` there.",
            obj="SMS_REDIS_URL",
            id="gateway.E203",
        )
    # An answer must mean "on disk": a message is acknowledged because Redis has answered. Without a
    # file the setting of its syncing means nothing.
    if options["aof"] != "0" and "appendfsync" not in options:
        yield Warning(
            "the SMS Redis forbids CONFIG: whether it writes to disk before it answers is unknown",
            hint="Verify with whoever runs it that `appendfsync` is `always` and "
            "`no-appendfsync-on-rewrite` is `no`; otherwise accepted messages can be lost.",
            obj="SMS_REDIS_URL",
            id="gateway.W209",
        )
    elif options["aof"] != "0":
        for option, safe_value in (("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")):
            if options.get(option, safe_value) != safe_value:
                yield Error(
                    "the SMS Redis answers before its file is on disk "
                    f"({option} {options[option]})",
                    hint=f"Set `{option} {safe_value}` in its configuration file, and at once with "
                    f"`redis-cli CONFIG SET {option} {safe_value}`; otherwise a killed Redis or a "
                    "power cut loses accepted messages.",
                    obj="SMS_REDIS_URL",
                    id="gateway.E204",
                )
    numbers = tuple(int(part) for part in options["version"].split(".")[:2] if part.isdigit())
    if (numbers or MIN_REDIS) < MIN_REDIS:
        yield Error(
            f"the SMS Redis is version {options['version']}",
            hint="Use Redis 6.2 or later, or Valkey.",
            obj="SMS_REDIS_URL",
            id="gateway.E205",
        )


def rows_check() -> list[CheckMessage]:
    """Gateways and accounts with settings that cannot work; nothing before the tables exist."""
    with suppress(DatabaseError):  # `check` runs before `migrate`, too
        all_gateways = list(SmsGateway.objects.all())
        gateways = [row for row in all_gateways if row.enabled]
        accounts = list(SmsAccount.objects.filter(enabled=True).select_related("biz"))
        return [
            *_shared_nodes(gateways),
            *_shared_logins(gateways),
            *_open_networks(all_gateways),
            *_late_reports(gateways),
            *_default_accounts(accounts),
            *_unheard_accounts(accounts),
        ]
    return []


def _shared_nodes(gateways: Sequence[SmsGateway]) -> Iterator[CheckMessage]:
    """A Report names our node id and a counter: two operators may send Reports with equal ones."""
    hosts: dict[int, dict[str, str]] = defaultdict(dict)
    for row in gateways:
        try:
            node = row.sp_node_id()
        except ValueError as error:
            yield Error(
                f"the gateway {row.name} has no node id: {error}",
                hint="Correct its area code in the console, such as 010 or 0755, or give it the "
                "node id; until then it is not used.",
                id="gateway.E212",
            )
            continue
        # Gateways of one operator, or on one host, share a network.
        hosts[node][row.operator or f"host {row.host}"] = row.name
    for node, names in hosts.items():
        if len(names) > 1:
            yield Warning(
                f"gateways on different hosts have the node id {node}: {_join(names.values())}",
                hint="If one operator gave you both, give both the same operator in the console; "
                "otherwise give each its own node id.",
                id="gateway.W206",
            )


def _open_networks(gateways: Sequence[SmsGateway]) -> Iterator[CheckMessage]:
    """Networks that cannot be read or that include every address. A gateway that is switched off is
    checked too, because its SMG may connect."""
    for row in gateways:
        try:
            networks = [ip_network(network) for network in row.networks]
        except ValueError as error:
            if not row.enabled:
                continue
            yield Error(
                f"the networks of the gateway {row.name} cannot be read: {error}",
                hint="Correct them in the console; until then it is not used.",
                id="gateway.E210",
            )
            continue
        if any(network.prefixlen == 0 for network in networks):
            yield Warning(
                f"anybody may connect as the gateway {row.name}: {_join(row.networks)}",
                hint="Ask the operator from which addresses its SMG connects; its password goes "
                "over the network as it is.",
                id="gateway.W211",
            )


def _shared_logins(gateways: Sequence[SmsGateway]) -> Iterator[CheckMessage]:
    """Gateways that share login and address: only these identify an SMG that binds to us."""
    names: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in gateways:
        place = _join(row.networks) or row.host
        with suppress(Undecryptable):  # the console and `doctor` report it
            names[row.smg_login_name, row.smg_login_password, place].append(row.name)
    for same_login in names.values():
        if len(same_login) > 1:
            yield Warning(
                "SMGs bind to us with the same name and password, from the same addresses: "
                f"{_join(same_login)}",
                hint="Nobody knows then which of them a Report comes from, and one on a message of "
                "another does not count: let the logins differ, or give all the same operator.",
                id="gateway.W207",
            )


def _default_accounts(accounts: Sequence[SmsAccount]) -> Iterator[CheckMessage]:
    names: dict[int, list[str]] = defaultdict(list)
    for row in accounts:
        if row.is_default:
            names[row.biz_id].append(row.name)
    for default_names in names.values():
        if len(default_names) > 1:
            yield Warning(
                f"several accounts are the default of one system: {_join(default_names)}",
                hint="Leave `default` on for one of them.",
                id="gateway.W208",
            )
    default_name = settings.SMS_DEFAULT_ACCOUNT
    if default_name and default_name not in {row.name for row in accounts}:
        yield Warning(
            f"SMS_DEFAULT_ACCOUNT={default_name!r} is the name of no enabled account: MOs that "
            "belong to no other one are archived only",
            hint="Set SMS_DEFAULT_ACCOUNT to an enabled account's name, or leave it unset.",
            obj="SMS_DEFAULT_ACCOUNT",
            id="gateway.W213",
        )


def _unheard_accounts(accounts: Sequence[SmsAccount]) -> Iterator[CheckMessage]:
    for row in accounts:
        if row.report_batches and not notifications.is_taken(notifications.REPORTS, row.biz_id):
            yield Warning(
                f"nobody gets the Reports of the account {row.name}: they are events "
                f"{notifications.REPORTS}, which no subscription of {row.biz} takes",
                hint=f"Let a subscription take {notifications.REPORTS} or sms.*, or switch off "
                "the account's Reports in batches.",
                id="gateway.W215",
            )


def _late_reports(gateways: Sequence[SmsGateway]) -> Iterator[CheckMessage]:
    days = settings.SMS_ARCHIVE_DAYS
    for row in gateways:
        min_days = _min_archive_days(row.report_hours)
        if row.report_hours > REPORT_HOURS and 0 < days < min_days:
            yield Warning(
                f"SMS_ARCHIVE_DAYS={days} is too short for the gateway {row.name}, which waits "
                f"{row.report_hours:g} hours for a Report: the archive may forget its messages "
                "soon after they came",
                hint=f"Set SMS_ARCHIVE_DAYS to {min_days} or more, or to 0 (kept for ever), or "
                "give the gateway fewer hours for a Report.",
                id="gateway.W214",
            )


def _join(names: Any) -> str:
    return ", ".join(sorted(names))
