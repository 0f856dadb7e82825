"""Examines this installation: parts, problems, and the commands that repair them."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.core import checks
from django.db import connections
from django.db.utils import Error as DatabaseError, OperationalError

from msgplatform import env
from msgplatform.core import cells, flows, outbound
from msgplatform.core.connections import RedisError, RedisRole, ResponseError
from msgplatform.core.daemons import exits, heartbeats
from msgplatform.core.data import cell_record, engines, migration_stages, server, transactions
from msgplatform.core.errors import PlatformError
from msgplatform.core.flows.health import Finding
from msgplatform.core.flows.programs import program_roles, redis_roles
from msgplatform.core.secrets import encryption, reencrypt
from msgplatform.models import Alert
from msgplatform.monitor import runbooks
from msgplatform.monitor.watch import LOOK_SECONDS, watch
from msgplatform.operation.supervision.platform import embedded_redis
from msgplatform.operation.supervision.preparation import FIRST_USER

LOW_DISK_BYTES = 1 << 30
_MAX_LISTED = 20  # alerts; groups of failures of each flow
_ROTATE = f"{env.COMMAND} rotate_encryption_key"
_WRONG_SECRETS: dict[encryption.State, tuple[Literal["warn", "bad"], str]] = {
    encryption.State.CLEAR: ("bad", _ROTATE),
    encryption.State.OLD: ("warn", _ROTATE),
    encryption.State.UNREADABLE: (
        "bad",
        "add the key they were encrypted with to ENCRYPTION_KEY and restart, or set them again "
        "in the console",
    ),
}


def examine() -> Iterator[Finding]:
    """Look at everything; errors become findings."""
    yield Finding("ok", f"Python {sys.version.split()[0]}")
    for look in (_settings, _database, _redis_roles, _daemons, _watch, _disk):
        yield from _report_errors(look, look.__name__.strip("_").replace("_", " "))
    # Skip these looks without a schema: `_database` has reported the cause of their errors.
    if not [*_report_errors(_schema_problems, "schema")]:
        for look in (_cell, _secrets, _users, _open_alerts, _failures):
            yield from _report_errors(look, look.__name__.strip("_").replace("_", " "))
        for flow in flows.all():
            yield from _report_errors(flow.health.examine, str(flow.title))


def _report_errors(look: Callable[[], Iterable[Finding]], name: str) -> Iterator[Finding]:
    try:
        yield from look()
    except (DatabaseError, RedisError, OSError) as error:
        yield Finding("bad", f"{name}: {error}")
    except Exception as error:  # noqa: BLE001 - what nobody expected is a finding too
        yield Finding("bad", f"{name}: {type(error).__name__}: {error}", "report this fault")


def _settings() -> Iterator[Finding]:
    problems = [check for check in checks.run_checks() if check.level >= checks.WARNING]
    for problem in problems:
        # The hint of a system check is the repair of the problem.
        is_error = problem.level >= checks.ERROR
        yield Finding("bad" if is_error else "warn", str(problem.msg), str(problem.hint or ""))
    if not problems:
        unset = "PUBLIC_URL is not set: `up` serves only this machine, over http"
        where = f"reachable as {settings.PUBLIC_URL}" if settings.PUBLIC_URL_SET else unset
        yield Finding("ok", f"settings; {where}")
    if settings.AUDIT_EXPORT and not settings.AUDIT_SIGNING_KEYS:
        text = "AUDIT_EXPORT is set, and AUDIT_SIGNING_KEY is not: run_bulk does not start here"
        yield Finding("warn", text, "right on a machine without run_bulk; elsewhere set the key")
    if outbound.is_off():
        yield Finding("warn", outbound.OFF, "set OUTBOUND=on for every program, and restart them")


def _cell() -> Iterator[Finding]:
    this_cell = cells.own()
    if not this_cell.is_only:
        yield Finding("ok", f"cell {this_cell}")
    try:
        cell_record.check()
    except cell_record.WrongCell as error:
        yield Finding("bad", str(error))
    other_cells = {beat.cell for beat in heartbeats.alive()} - {this_cell.label}
    if other_cells:
        names = ", ".join(sorted(name or "a platform without CELL" for name in other_cells))
        yield Finding(
            "bad",
            f"programs of another cell use this work Redis: {names}",
            "give each cell its own REDIS_URL and SMS_REDIS_URL, and restart its programs",
        )


def _database() -> Iterator[Finding]:
    for alias in settings.DATABASES:
        connection = connections[alias]
        try:
            version = connection.get_database_version()
            version_text = ".".join(map(str, version))
            yield Finding("ok", f"database {alias}: {connection.display_name} {version_text}")
            state = server.cluster(alias)
        except OperationalError as error:
            if not transactions.has_no_quorum(error):
                raise
            yield Finding(
                "bad",
                f"database {alias}: its server has no quorum: it is there, and takes no work",
                "start the other servers; if they are lost, make this one the primary "
                "(docs/scale.md)",
            )
            continue
        if state is not None:
            text = (
                f"database {alias}: {state.size} of {state.expected} servers, this one "
                f"{state.state}"
            )
            if state.size < state.expected:
                yield Finding("bad", text, "start the other servers; their logs say why they ended")
            else:
                yield Finding("ok", text)
        if finding := _schema_problem(alias):
            yield finding
        engine = engines.of(alias)
        for problem in (*engine.problems(connection), *engine.settings(connection)):
            yield Finding("bad" if problem.is_serious else "warn", problem.text, problem.repair)


def _schema_problem(alias: str) -> Finding | None:
    """Why programs cannot use their tables; None if they can, or the database does not answer."""
    try:
        if missing := migration_stages.missing_tables(connections[alias]):
            return Finding("bad", missing)
        count = migration_stages.count_open(connections[alias])
    except DatabaseError:
        return None
    repair = migration_stages.migrate_command(alias)
    return Finding("bad", f"migrations that are not applied: {count}", repair) if count else None


def _schema_problems() -> Iterator[Finding]:
    yield from filter(None, map(_schema_problem, settings.DATABASES))


def _secrets() -> Iterator[Finding]:
    """Encrypted columns: their values are counted by state, never shown."""
    if not encryption.is_usable(settings.ENCRYPTION_KEYS):
        return  # `_settings` has reported it
    total: Counter[encryption.State] = Counter()
    for column in reencrypt.columns():
        counts = reencrypt.count(column)
        total += counts
        for state, (level, repair) in _WRONG_SECRETS.items():
            if counts[state]:
                yield Finding(level, f"{column}: values {state}: {counts[state]}", repair)
    current = total[encryption.State.CURRENT]
    if current == total.total():
        count = len(settings.ENCRYPTION_KEYS) - 1
        repair = f"the other {count} of ENCRYPTION_KEY may be removed" if count else ""
        yield Finding("ok", f"secrets: all {current} are under the first key", repair)


def _users() -> Iterator[Finding]:
    users = get_user_model()
    console_users = users.objects.filter(is_active=True, is_staff=True)
    if console_users.exists():
        if not console_users.exclude(password__startswith=UNUSABLE_PASSWORD_PREFIX).exists():
            repair = f"`up` prints a link for {FIRST_USER}; or: {env.COMMAND} "
            name = console_users.values_list("username", flat=True)[0]
            yield Finding("warn", "nobody has a password yet", f"{repair}changepassword {name}")
        return
    create = f"{env.COMMAND} createsuperuser"
    if users.objects.exists():
        yield Finding("bad", "nobody can log in: no user is active and staff", create)
    else:
        repair = f"`up` creates one and prints a link to choose a password; or: {create}"
        yield Finding("bad", "nobody can log in: there is no user", repair)


def _redis_roles() -> Iterator[Finding]:
    try:
        for name, redis in embedded_redis().items():
            yield Finding("ok", f"embedded {name}: {redis.argv[0]}")
    except PlatformError as error:
        yield Finding("bad", f"embedded Redis: {error}")
    for role in redis_roles():
        yield from _redis(role)
        if role.is_truth:
            yield from _append_only(role)


def _append_only(role: RedisRole) -> Iterator[Finding]:
    try:
        options: Any = role.client().config_get("*append*")
    except ResponseError:  # a hosted Redis may forbid CONFIG
        yield Finding(
            "warn",
            f"{role.variable}: CONFIG is forbidden; whether accepted messages are kept is unknown",
            "verify: appendonly yes, appendfsync always, no-appendfsync-on-rewrite no",
        )
        return
    except RedisError:  # `_redis` has reported it
        return
    right = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
    wrong = [name for name, value in right.items() if options.get(name, value) != value]
    for name in wrong:
        yield Finding(
            "bad",
            f"{role.variable}: a kill can lose accepted messages ({name} {options[name]})",
            f"redis-cli CONFIG SET {name} {right[name]}, and the same in its configuration file",
        )
    if not wrong:
        yield Finding("ok", f"{role.variable}: accepted messages are kept (appendfsync always)")


def _redis(role: RedisRole) -> Iterator[Finding]:
    variable = role.variable
    try:
        info: Any = role.client().info()
    except RedisError as error:
        repair = f"`up` starts it; or set {variable}" if role.is_embedded else f"check {variable}"
        yield Finding("bad", f"{variable}: {error}", repair)
        return
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < (6, 2):
        yield Finding("bad", f"{variable}: Redis {version} is too old", "use Redis 6.2 or newer")
        return
    yield Finding("ok", f"{variable}: Redis {version}")
    limit, used = int(info["maxmemory"]), int(info["used_memory"])
    if limit and used > 0.9 * limit:
        text = f"{variable}: {used >> 20} of {limit >> 20} MiB are used (maxmemory)"
        yield Finding("bad", text, "raise its maxmemory, and see what waits there")
    policy = info["maxmemory_policy"]  # not by CONFIG, which a hosted Redis may forbid
    if policy != "noeviction":
        yield Finding(
            "bad",
            f"{variable}: maxmemory-policy {policy} discards work",
            "redis-cli CONFIG SET maxmemory-policy noeviction",
        )


def _daemons() -> Iterator[Finding]:
    exits_by_program = exits.of_platform_or_machine()
    for end in exits_by_program.values():
        yield Finding("bad", f"{end.subject} on {end.host}: {end.text}")
    running = {beat.role for beat in heartbeats.alive()}
    for role in sorted(program_roles()):
        if role in running:
            yield Finding("ok", f"run_{role} is running")
        elif role not in exits_by_program:
            yield Finding("warn", f"run_{role} is not running", f"{env.START}{role}")
    if len(programs := server.programs_by_node()) > 1:
        places = "; ".join(f"{node}: {', '.join(names)}" for node, names in programs.items())
        yield Finding(
            "bad",
            f"programs write to several servers of the database: {places}",
            "have every program connect to the one address of HAProxy (docs/scale.md)",
        )


def _watch() -> Iterator[Finding]:
    """A program must watch the platform, or nobody notices problems."""
    beats = heartbeats.alive()
    if watch.is_held():
        yield Finding("ok", "a program watches the platform")
    elif beats and time.time() - min(beat.since for beat in beats) < 2 * LOOK_SECONDS:
        yield Finding("warn", "the programs have just started: soon one watches the platform")
    else:
        yield Finding(
            "bad",
            "no program watches the platform: nobody notices what goes wrong",
            "start any run_* program: by its unit or container, or all by `up`",
        )


def _disk() -> Iterator[Finding]:
    settings.STATE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.STATE_DIR).free
    text = f"{free / (1 << 30):.1f} GiB free in {settings.STATE_DIR}"
    is_enough = free > LOW_DISK_BYTES
    yield Finding("ok" if is_enough else "bad", text, "" if is_enough else "free disk space")


def _open_alerts() -> Iterator[Finding]:
    """The open alerts: unacknowledged alerts first, then the latest seen."""
    rows = Alert.objects.filter(open_key__isnull=False).order_by("acknowledged_at", "-last_at")
    alerts = list(rows[: _MAX_LISTED + 1])
    for alert in alerts[:_MAX_LISTED]:
        note = f" (acknowledged by {alert.acknowledged_by})" if alert.acknowledged_at else ""
        first_step = runbooks.section(alert.kind).first_step
        yield Finding(
            "warn" if note else "bad",
            f"alert {alert.kind}: {alert.subject}{note}",
            f"{first_step or alert.text} ({runbooks.anchor(alert.kind)})",
        )
    if len(alerts) > _MAX_LISTED:
        yield Finding("bad", f"more than {_MAX_LISTED} alerts are open", "see them in the console")
    if not alerts:
        yield Finding("ok", "no alert is open")


def _failures() -> Iterator[Finding]:
    """The failures that were neither resent nor acknowledged."""
    has_failures = False
    for flow in flows.all():
        groups = flow.health.failures()
        has_failures = has_failures or bool(groups)
        for failure in groups[:_MAX_LISTED]:
            yield Finding(
                "bad",
                f"{flow.title}: {failure.where}: {failure.answer}: failures: {failure.count}",
                "send them again or acknowledge them on the console's page Failures",
            )
        if (count := len(groups) - _MAX_LISTED) > 0:
            yield Finding("bad", f"{flow.title}: more groups of failures: {count}")
    if not has_failures:
        yield Finding("ok", "no failures that nobody has looked at")
