"""A server of MySQL or MariaDB: its requirements (version, character sets, settings, privileges of
our user), and its present work."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.utils import OperationalError, ProgrammingError

from msgplatform.core.data.engines.contract import NEEDS_TRIGGER, Fault, Problem, Rows, Statements
from msgplatform.core.data.engines.mysql import error_codes

_TESTED = "MariaDB 10.11 and MySQL 9.7"

# Columns in `utf8` (utf8mb3), latin1 or gbk refuse an emoji in a consumer's answer (1366).
_COLUMNS = """
SELECT table_name, column_name, column_type, is_nullable, column_default
FROM information_schema.columns
WHERE table_schema = DATABASE() AND character_set_name IS NOT NULL
  AND character_set_name <> 'utf8mb4'
ORDER BY table_name, ordinal_position
"""
# A word in a server's version or comment → a product with MySQL's protocol, and the feature that
# the platform needs and the product lacks.
_OTHERS = {
    "tidb": ("TiDB", "triggers"),
    "vitess": ("Vitess", "triggers"),
    "oceanbase": ("OceanBase", "partitions that are locked and dropped as in MySQL"),
    "singlestore": ("SingleStore", "triggers"),
    "memsql": ("SingleStore", "triggers"),
    "starrocks": ("StarRocks", "transactions"),
    "doris": ("Doris", "transactions"),
    "clickhouse": ("ClickHouse", "transactions"),
    "mycat": ("MyCAT", "triggers"),
}
# A user without SUPER may make no trigger on a server with a binary log, or on a Galera node, which
# emulates a binary log. MySQL skips text between /*M! and */. @@wsrep_on would be an error in a
# MariaDB that was built without Galera.
_ASKS_FOR_SUPER = (
    "SELECT (@@log_bin /*M! OR EXISTS (SELECT 1 FROM information_schema.GLOBAL_VARIABLES "
    "WHERE VARIABLE_NAME = 'WSREP_ON' AND VARIABLE_VALUE = 'ON') */) "
    "AND NOT @@log_bin_trust_function_creators AND NOT EXISTS ("
    "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SUPER' AND "
    """GRANTEE = CONCAT("'", SUBSTRING_INDEX(CURRENT_USER(), '@', 1), "'@'", """
    """SUBSTRING_INDEX(CURRENT_USER(), '@', -1), "'"))"""
)
# Servers check privileges before tables: with the privilege the error is a missing table.
_TRIGGER_ON_NOTHING = (
    "CREATE TRIGGER msgplatform_no_trigger BEFORE INSERT ON msgplatform_no_table "
    "FOR EACH ROW SET @msgplatform_no_value = 1"
)
_NEEDS_SUPER = (
    "SET GLOBAL log_bin_trust_function_creators = 1 as an administrator (of Galera on every node), "
    "or grant SUPER to this user, until migrate has run"
)
_LARGEST_BATCH = 16 << 20  # bytes; the largest that the API takes


def refusal(connection: Any, name: str, oldest: tuple[int, ...]) -> str:
    """The reason why the platform cannot work on a server: another product that speaks MySQL's
    protocol, or an old version; '' if it can."""
    version, comment = _product(connection)
    words = f"{version} {comment}".lower()
    for word, (product, missing) in _OTHERS.items():
        if word in words:
            return (
                f"The database {connection.alias} is {product} ({version}), which has no "
                f"{missing}. Use {_TESTED}."
            )
    if connection.mysql_version < oldest:
        return (
            f"The database {connection.alias} is {name} {version}, or a proxy that calls itself "
            f"so. Use {name} {'.'.join(map(str, oldest))} or later; {_TESTED} are tested."
        )
    return ""


def _product(connection: Any) -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION(), @@version_comment")
        version, comment = cursor.fetchone()
    return str(version), str(comment)


def problems(connection: Any) -> Iterator[Problem]:
    """Problems: an untested product; a proxy; a database whose new tables get another character
    set; each table with another character set, without tables of other programs."""
    version, comment = _product(connection)
    # MariaDB before 11 begins with a version for old replicas.
    greeting = str(connection.connection.get_server_info()).removeprefix("5.5.5-")
    if greeting.split("-")[0] != version.split("-")[0]:
        yield Problem(
            f"a proxy that calls itself {greeting} is before the database {connection.alias} "
            f"({version}): that was not tested",
            "Each connection of the platform needs one of the server for itself: turn off "
            "multiplexing, caches and the splitting of reads from writes.",
            "msgplatform.W202",
            is_serious=False,
        )
    if "percona" in comment.lower():
        yield Problem(
            f"the database {connection.alias} is {comment} {version}: it should work, and was not "
            "tested",
            f"{_TESTED} are tested.",
            "msgplatform.W202",
            is_serious=False,
        )
    yield from character_sets(connection)


def character_sets(connection: Any) -> Iterator[Problem]:
    own_tables = set(connection.introspection.django_table_names())
    with connection.cursor() as cursor:
        cursor.execute("SELECT DATABASE(), @@character_set_database")
        name, character_set = cursor.fetchone()
        if character_set != "utf8mb4":
            yield Problem(
                f"new tables of the database {name} get the character set {character_set}, which "
                "cannot hold every character",
                f"ALTER DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;",
                "msgplatform.E202",
            )
        cursor.execute(_COLUMNS)
        columns = [column for column in cursor.fetchall() if column[0] in own_tables]
    changes: dict[str, list[str]] = defaultdict(list)
    for table, column, column_type, is_nullable, default in columns:
        null = "NULL" if is_nullable == "YES" else "NOT NULL"
        # MariaDB gives the default of a text as an expression, or as NULL.
        value = "" if default in (None, "NULL") else f" DEFAULT {default}"
        changes[table].append(
            f"MODIFY `{column}` {column_type} CHARACTER SET utf8mb4 {null}{value}"
        )
    for table, parts in changes.items():
        yield Problem(
            f"{len(parts)} columns of the table {table} cannot hold every character",
            f"ALTER TABLE `{table}` {', '.join(parts)};",
            "msgplatform.E202",
        )


def refused_triggers(connection: Any) -> str:
    """The repair if this user may not make triggers, else ''."""
    with connection.cursor() as cursor:
        cursor.execute(_ASKS_FOR_SUPER)
        ((asks_for_super,),) = cursor.fetchall()
        if asks_for_super:
            return _NEEDS_SUPER
        # A cluster would send the statement to every node.
        if getattr(connection, "is_in_cluster", False):
            return ""
        try:
            cursor.execute(_TRIGGER_ON_NOTHING)
        except (OperationalError, ProgrammingError) as error:
            is_refused = error_codes.fault(error.args[0], error) is Fault.REFUSED
            return NEEDS_TRIGGER if is_refused else ""
    return ""


def settings(connection: Any) -> Iterator[Problem]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, "
            "@@max_allowed_packet, @@max_connections"
        )
        flush, has_log, sync, packet, max_connections = map(int, cursor.fetchone())
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Max_used_connections'")
        used_connections = int(cursor.fetchone()[1])
        cursor.execute("SHOW VARIABLES LIKE 'binlog_format'")  # not in each release of MySQL
        log_format = dict(cursor.fetchall()).get("binlog_format")
    if has_log and log_format == "STATEMENT":
        yield Problem(
            "a binary log with binlog_format=STATEMENT: the server refuses every change",
            "SET GLOBAL binlog_format='ROW', and the same in the server's configuration",
        )
    if flush not in (1, 3):  # 3 is MariaDB's: InnoDB syncs a commit whatever the binary log does
        yield Problem(
            f"innodb_flush_log_at_trx_commit={flush}: a power cut loses accepted messages",
            "SET GLOBAL innodb_flush_log_at_trx_commit=1",
            is_serious=False,
        )
    # InnoDB leaves the sync to a binary log. Without both syncs a commit may be lost.
    if flush == 1 and has_log and sync != 1:
        yield Problem(
            f"a binary log with sync_binlog={sync}: a power cut loses accepted messages",
            "SET GLOBAL sync_binlog=1, and the same in the server's configuration",
            is_serious=False,
        )
    if packet < _LARGEST_BATCH:
        yield Problem(
            f"max_allowed_packet={packet}: a large batch may be refused",
            f"SET GLOBAL max_allowed_packet={_LARGEST_BATCH}",
            is_serious=False,
        )
    if used_connections > 0.8 * max_connections:
        yield Problem(
            f"max_connections={max_connections}: {used_connections} were open at once; when there "
            "are no more, every program and web server is refused",
            f"SET GLOBAL max_connections={2 * max_connections}, and the same in the server's "
            "configuration (docs/sizing.md)",
            is_serious=False,
        )


# -- what it does ---------------------------------------------------------------------------------
_READERS = (
    "^[[:space:](]*(select|show|set|use|explain|describe|analyze|optimize|check|kill)[[:space:]]"
)
# All other commands may write: stored events (`Connect`), bulk statements, later commands.
_NO_STATEMENTS = "'Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID'"
# The time of a replication thread is its lag. A user who logs in has no statement yet.
_NO_WRITERS = "'system user', 'unauthenticated user'"
_STATEMENTS = f"""
SELECT
    CAST(UTC_TIMESTAMP(6) AS CHAR),
    MAX(IF(
        USER NOT IN ({_NO_WRITERS}) AND COALESCE(INFO, '') NOT REGEXP '{_READERS}',
        GREATEST(TIME, 0), NULL
    )),
    COALESCE(MAX(USER = 'system user'), 0),
    CAST(@@GLOBAL.read_only AS CHAR)
FROM information_schema.PROCESSLIST
WHERE ID <> CONNECTION_ID() AND COMMAND NOT IN ({_NO_STATEMENTS})
"""  # noqa: S608 - constants
# The query takes the earlier moment of the hour that a wall clock shows twice.
_TRANSACTIONS = """
SELECT
    COALESCE(MAX(own AND started >= CONVERT_TZ(%s, '+00:00', 'SYSTEM')), 0),
    CAST(MIN(IF(own OR number = 0, NULL, IF(
        CONVERT_TZ(moment - INTERVAL 1 HOUR, '+00:00', 'SYSTEM') = started,
        moment - INTERVAL 1 HOUR, moment
    ))) AS CHAR)
FROM (
    SELECT
        trx_mysql_thread_id = CONNECTION_ID() AS own,
        trx_started AS started,
        CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') AS moment,
        IF(trx_id < 281474976710656, trx_id, 0) AS number
    FROM information_schema.INNODB_TRX
) AS transactions
"""  # MySQL numbers its readers from 2^48 on


def processlist(rows: Rows) -> str:
    """The table of a server's connections. On MySQL the table of information_schema fails if a
    connection runs a statement with an emoji (3854)."""
    ((has_better,),) = rows(
        "SELECT @@performance_schema AND EXISTS (SELECT 1 FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = 'performance_schema' AND TABLE_NAME = 'processlist')"
    )
    return "performance_schema.processlist" if has_better else "information_schema.PROCESSLIST"


class ServerActivity:
    # `trx_started` comes from a clock that moves with the kernel's ticks, and can lag behind.
    clock_lag = timedelta(milliseconds=100)

    def now(self, rows: Rows) -> str:
        ((text,),) = rows("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)")
        return str(text)

    def identity(self, rows: Rows) -> str:
        ((name,),) = rows("SELECT CONCAT_WS(' ', CURRENT_USER(), @@hostname, @@port, @@datadir)")
        return str(name)

    def is_in_cluster(self, rows: Rows) -> bool:
        # Galera, or group replication of MySQL.
        variables = rows(
            "SHOW GLOBAL VARIABLES "
            "WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name')"
        )
        return any(value not in ("OFF", "") for _name, value in variables)

    def statements(self, rows: Rows) -> Statements:
        # `processlist` lacks the statements of stored events. If MySQL fails for a statement with
        # an emoji, the source is asked again later.
        ((now, longest, is_replicating, read_only),) = rows(_STATEMENTS)
        # Later servers have more values than ON and OFF.
        is_replica = bool(is_replicating) or read_only not in ("0", "OFF")
        return Statements(now, None if longest is None else int(longest), is_replica)

    def oldest_transaction(self, rows: Rows, since: datetime) -> tuple[bool, str | None]:
        ((is_new, oldest),) = rows(_TRANSACTIONS, [str(since.replace(tzinfo=None))])
        return bool(is_new), oldest
