"""Configuration faults as system checks: each names the variable and how to repair it.

E0xx a wrong setting; nothing starts · E1xx, W1xx seen by `check --deploy` · E2xx, W2xx seen by
`check --database`. Only the last kind talks to a server.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.http.request import validate_host

from msgplatform import env
from msgplatform.core.data import engines, migration_stages
from msgplatform.core.flows.programs import redis_roles
from msgplatform.core.http.addresses import bracketed
from msgplatform.core.rates import shared

# An entry of ALLOWED_HOSTS that can fit a request: a name, a pattern, an IPv6 address in brackets.
_HOST = re.compile(r"[^/:\s]+|\[[^/\s\]]+\]")
NEW_KEY = "python3 -c 'import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())'"


@register(env.CHECKS_TAG)
def settings_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    if settings.SECRET_KEY_MISSING:
        yield Error(
            "SECRET_KEY is not set",
            hint="Make one: python3 -c 'import secrets; print(secrets.token_urlsafe(50))', and "
            "give it as SECRET_KEY, or write it into a file and name that as SECRET_KEY_FILE.",
            id="msgplatform.E001",
        )
    if not settings.ENCRYPTION_KEYS:
        yield Error(
            "ENCRYPTION_KEY is not set",
            hint=f"For a new installation make one: {NEW_KEY}, and give it to every program as "
            "ENCRYPTION_KEY, or write it into a file and name that as ENCRYPTION_KEY_FILE. What is "
            "stored already can be read only with the key it was encrypted with.",
            obj="ENCRYPTION_KEY",
            id="msgplatform.E008",
        )
    yield from malformed_keys("ENCRYPTION_KEY", "encrypts", "msgplatform.E009")
    for problem in env.problems:
        yield Error(problem.message, hint=problem.hint, obj=problem.variable, id="msgplatform.E002")
    rates_by_scope: Any = settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]
    for scope, rate in rates_by_scope.items():
        try:
            shared.parse_rate(rate)
        except ValueError as error:
            variable = f"API_RATE_{scope.upper()}"
            yield Error(
                f"{variable}: {error}", hint=shared.RATE_HINT, obj=variable, id="msgplatform.E003"
            )
    if settings.DEBUG and settings.PUBLIC_URL.startswith("https://") and env.text("PUBLIC_URL"):
        yield Warning(
            "DEBUG is on while PUBLIC_URL is a public address",
            hint="Set DEBUG=no: error pages show settings and source to everybody.",
            obj="DEBUG",
            id="msgplatform.W007",
        )


@register(env.CHECKS_TAG)
def hosts_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Names that fit no request. They are an error where no other name is listed."""
    host = bracketed(urlsplit(settings.PUBLIC_URL).hostname or "")
    is_answered = validate_host(host, settings.ALLOWED_HOSTS)
    if wrong_names := [name for name in settings.ALLOWED_HOSTS if not _HOST.fullmatch(name)]:
        has_others = len(wrong_names) < len(settings.ALLOWED_HOSTS)
        yield (Warning if has_others else Error)(
            f"ALLOWED_HOSTS has entries that are no host names: {', '.join(wrong_names)}",
            hint="Write names without https://, port and path, separated by commas, such as "
            "messages.example.com,localhost",
            obj="ALLOWED_HOSTS",
            id="msgplatform.W018" if has_others else "msgplatform.E018",
        )
    elif settings.PUBLIC_URL_SET and not is_answered:
        yield Warning(
            f"ALLOWED_HOSTS lacks the host of PUBLIC_URL: requests for {host} are answered 400",
            hint=f"Add {host} to ALLOWED_HOSTS, or leave ALLOWED_HOSTS unset.",
            obj="ALLOWED_HOSTS",
            id="msgplatform.W019",
        )


def malformed_keys(
    variable: str, use: str, id: str, read: Callable[[str], object] = Fernet
) -> Iterator[CheckMessage]:
    """An error for each key of a variable that `read` refuses. `use` is the use of the first key:
    "encrypts"."""
    keys = getattr(settings, f"{variable}S")
    for place, key in enumerate(keys, 1):
        try:
            read(key)
        except ValueError:
            yield Error(
                f"{variable}: key {place} of {len(keys)} is not usable",
                hint=f"A key is 32 bytes in URL-safe base64, as this line makes it: {NEW_KEY}. "
                f"Several are separated by commas; the first one {use}.",
                obj=variable,
                id=id,
            )


@register(env.CHECKS_TAG)
def servers_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Servers that the settings name twice."""
    main_place = _database_place(settings.DATABASES["default"])
    if settings.COLD_DATABASE_URL_SET and _database_place(settings.DATABASES["cold"]) == main_place:
        yield Error(
            "COLD_DATABASE_URL names the same database as DATABASE_URL",
            hint="Leave COLD_DATABASE_URL unset: the archive then lives in the main database.",
            obj="COLD_DATABASE_URL",
            id="msgplatform.E004",
        )
    for role, other_role in combinations(redis_roles(), 2):
        server, number = _redis_place(role.url)
        other_server, other_number = _redis_place(other_role.url)
        if server == other_server and number == other_number:
            yield Error(
                f"{other_role.variable} and {role.variable} are the same Redis",
                hint=f"Give {other_role.variable} a Redis server of its own: with AOF on and "
                "maxmemory-policy noeviction it is the truth, while the work Redis may be flushed "
                "at any moment.",
                obj=other_role.variable,
                id="msgplatform.E005",
            )
        elif server == other_server:
            yield Warning(
                f"{other_role.variable} and {role.variable} are two databases of one Redis server",
                hint=f"Give {other_role.variable} a server of its own: eviction, AOF and FLUSHALL "
                "are the whole server's.",
                obj=other_role.variable,
                id="msgplatform.W006",
            )


def _database_place(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The server, and the name of the database in it."""
    place = (config.get(part) for part in ("ENGINE", "HOST", "PORT", "NAME"))
    return (*place, config.get("OPTIONS", {}).get("unix_socket"))


def _redis_place(url: str) -> tuple[str, str]:
    """The server, and the database number in it."""
    parts = urlsplit(url)
    numbers = parse_qs(parts.query).get("db")
    if parts.scheme == "unix":
        return parts.path, numbers[0] if numbers else "0"
    number = numbers[0] if numbers else parts.path.strip("/")
    return f"{parts.hostname}:{parts.port or 6379}", number or "0"


@register(env.CHECKS_TAG, deploy=True)
def deploy_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    for role in redis_roles():
        if role.is_embedded:
            yield Error(
                f"{role.variable} is not set: the embedded Redis is for trying things out",
                hint=f"Run a Redis server under your own supervision and set {role.variable}, for "
                "example redis://10.0.0.5:6379/0",
                obj=role.variable,
                id="msgplatform.E101",
            )
    if settings.SECURE_PROXY_SSL_HEADER and not settings.REST_FRAMEWORK["NUM_PROXIES"]:
        yield Warning(
            "API_NUM_PROXIES is 0 although TRUST_X_FORWARDED_PROTO says that a proxy is in front",
            hint="Set API_NUM_PROXIES to the number of proxies that add to X-Forwarded-For, "
            "usually 1: limits by address then count callers, not the proxy.",
            obj="API_NUM_PROXIES",
            id="msgplatform.W102",
        )


@register(Tags.database)
def database_check(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    for alias in databases or ():
        for problem in engines.of(alias).problems(connections[alias]):
            yield (Error if problem.is_serious else Warning)(
                problem.text, hint=problem.repair, id=problem.id
            )
    for text in migration_stages.faults():
        yield Error(text, id="msgplatform.E203")
