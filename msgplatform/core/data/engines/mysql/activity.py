"""What a server does at a moment, as far as its user may see it: for the horizon of a source."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgplatform.core.data.engines.contract import Rows, Statements

_READERS = (
    "^[[:space:](]*(select|show|set|use|explain|describe|analyze|optimize|check|kill)[[:space:]]"
)
# Everything else may write: stored events (`Connect`), bulk statements, commands of later servers.
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
# In the hour that a wall clock shows twice, the earlier moment is taken.
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


class ServerActivity:
    # `trx_started` comes from a clock that moves on with the kernel's ticks: it can lag behind.
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
        ((now, longest, is_replicating, read_only),) = rows(_STATEMENTS)
        # Later servers have more values than ON.
        is_replica = bool(is_replicating) or read_only not in ("0", "OFF")
        return Statements(now, None if longest is None else int(longest), is_replica)

    def oldest_transaction(self, rows: Rows, since: datetime) -> tuple[bool, str | None]:
        ((is_new, oldest),) = rows(_TRANSACTIONS, [str(since.replace(tzinfo=None))])
        return bool(is_new), oldest
