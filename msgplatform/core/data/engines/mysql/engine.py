"""MySQL, and the part in which MariaDB is the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, cast

from django.db import Error

from msgplatform.core.data.engines.contract import (
    IDLE_TRANSACTION_SECONDS,
    LOCK_WAIT_SECONDS,
    STATEMENT_SECONDS,
    Cluster,
    Column,
    Connection,
    Engine,
    Fault,
    Index,
    Problem,
    Row,
    Rows,
)
from msgplatform.core.data.engines.mysql import error_codes, server, values

# Seconds to wait for a table lock. Other statements queue behind a waiting lock, so give up soon.
_TABLE_WAIT_SECONDS = 2


class MySql(Engine):
    name = "MySQL"
    dump_programs, load_programs = ("mysqldump", "mariadb-dump"), ("mysql", "mariadb")
    oldest_version: tuple[int, ...] = (8, 0, 13)  # defaults that are expressions, skip_scan
    is_server = True
    has_partitions = True
    has_exact_times = True
    finds_rows_by_any_key = True
    clock_step = timedelta(microseconds=1)
    # The default collations compare without case: `a` equals `A`.
    exact_collation = "utf8mb4_bin"
    ordered_join = "STRAIGHT_JOIN"
    row_word = "ROW"
    share_lock = "LOCK IN SHARE MODE"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    bytes_type = "BINARY"
    explain = "EXPLAIN FORMAT=TRADITIONAL"  # MySQL 9 answers with a tree by default
    begin = "START TRANSACTION"
    backend = "msgplatform.core.data.engines.mysql"
    # MySQL reads the idle limit as a comment, since it has none (`base.py` limits each
    # transaction). MariaDB reads the last part as a comment: with a skip scan MySQL reads a whole
    # index for one page.
    options: dict[str, Any] = {
        "charset": "utf8mb4",
        "isolation_level": "read committed",
        "init_command": "SET time_zone='+00:00', "
        "sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
        f", innodb_lock_wait_timeout={LOCK_WAIT_SECONDS}"
        f" /*M! , idle_transaction_timeout={IDLE_TRANSACTION_SECONDS} */"
        " /*!80013 , optimizer_switch='skip_scan=off' */",
        "connect_timeout": 5,
        "local_infile": 0,  # no server may ask for files of this machine
        # Without a time limit a dead connection blocks its process for hours. `migrate` has no
        # limit.
        "read_timeout": STATEMENT_SECONDS,
        "write_timeout": STATEMENT_SECONDS,
    }
    # These options keep our locks from blocking other programs: no gap locks, short lock waits, and
    # the server ends idle transactions. Their time limits are shorter than those of `options`.
    writer_options: dict[str, Any] = {**options, "read_timeout": 30, "write_timeout": 30}
    # Of Django (isolation_level) and mysqlclient, whose other parameters are no texts or numbers.
    option_names = frozenset({
        "auth_plugin", "autocommit", "binary_prefix", "charset", "client_flag", "collation",
        "compress", "connect_timeout", "executemany_fallback", "init_command", "isolation_level",
        "local_infile", "local_infile_dir", "multi_statements", "read_default_file",
        "read_default_group", "read_timeout", "server_public_key_path", "sql_mode", "ssl",
        "ssl-ca", "ssl_mode", "unix_socket", "use_unicode", "write_timeout",
    })  # fmt: skip
    time_types = frozenset({"timestamp", "datetime"})
    activity = server.ServerActivity()
    # Reads a table: a Galera node without a quorum answers `SELECT 1`, but refuses tables (1047).
    question = "SELECT 1 FROM django_migrations LIMIT 1"

    def fault(self, error: BaseException) -> Fault:
        code = error.args[0] if error.args else 0
        return error_codes.fault(code, error)

    # -- words -----------------------------------------------------------------------------------
    def now(self, seconds: float = 0.0) -> str:
        offset = f" + INTERVAL {round(seconds * 1_000_000)} MICROSECOND" if seconds else ""
        return f"(CURRENT_TIMESTAMP(6){offset})"

    def age(self, time: str) -> str:
        return f"TIMESTAMPDIFF(MICROSECOND, {time}, UTC_TIMESTAMP(6)) / 1000000.0"

    def checksum(self, columns: Iterable[str]) -> str | None:
        # CONCAT_WS would skip NULL, which must differ from every text.
        texts = ", ".join(f"IFNULL({column}, CHAR(1))" for column in columns)
        return f"CRC32(CONCAT_WS(CHAR(0), {texts}))"

    def sum_of_checksums(self, columns: Iterable[str]) -> str | None:
        """The sum of squares: CRC32 is linear, so its own sum often stays equal when two rows swap
        texts of one length. SHA2 costs half as much again."""
        return f"SUM({self.checksum(columns)} * {self.checksum(columns)})"

    def force_index(self, index: str) -> str:
        return f"FORCE INDEX ({index})"

    def by_primary_key(self, connection: Connection, table: str) -> str:
        return "FORCE INDEX (PRIMARY)"

    def delete_by_key(self, table: str) -> str:
        # Only the form with a table list takes an index hint.
        return f"DELETE {table} FROM {table} FORCE INDEX (PRIMARY)"

    def branch(self, select: str) -> str:
        return f"({select})"

    def choice(self, column: str, ids: Sequence[int]) -> str:
        # FIELD is 0 for an id that is not in the list, and ELT of 0 is NULL.
        places = ",".join(["%s"] * len(ids))
        return f"COALESCE(ELT(FIELD(id,{','.join(map(str, ids))}),{places}),{column})"

    def contains(self, column: str) -> str:
        return f"LOCATE(%s, {column}) > 0"

    def bytes_of(self, text: str) -> str:
        return text  # compared with the column's bytes as UTF-8

    def exact(self, text: str) -> str:
        return f"CAST(CONVERT({text} USING utf8mb4) AS BINARY)"

    def begins_with(self, column: str, prefix: str) -> dict[str, str]:
        return {f"{column}__istartswith": prefix}  # LIKE; `startswith` compares bytes

    def equals(self, column: str, value: Any) -> dict[str, Any]:
        """A range with equal bounds. For `column = value AND id < cursor` MariaDB may use only the
        index's first column and read every row above the cursor. With two ranges MariaDB starts at
        the cursor. SQLite needs the equality."""
        return {f"{column}__gte": value, f"{column}__lte": value}

    # -- writing ---------------------------------------------------------------------------------
    def upsert(self, key: Sequence[str]) -> str:
        return " ON DUPLICATE KEY UPDATE "

    def new_value(self, column: str) -> str:
        return f"VALUES({column})"

    def keep(self, table: str, column: str) -> str:
        return f" ON DUPLICATE KEY UPDATE `{table}`.`{column}` = `{table}`.`{column}`"

    def keep_newer(self, table: str, columns: Sequence[str], is_number: bool) -> str:
        # MySQL assigns the version last, so earlier columns compare with the old version. `takes`
        # checks the key, because a duplicate of another unique key is another record.
        key, *value_columns = columns
        version = value_columns[-1]
        takes = (
            f"CAST({key} AS BINARY) = CAST(VALUES({key}) AS BINARY) "
            f"AND ({version} IS NULL OR VALUES({version}) >= {version})"
        )
        sets = ", ".join(f"{name} = IF({takes}, VALUES({name}), {name})" for name in value_columns)
        return f"{self.upsert([key])}{sets}"

    def insert(
        self, cursor: Any, start: str, rows: Sequence[Row], clause: str = "", end: Row = ()
    ) -> None:
        for part in values.statements(cursor.db, rows, end):
            statement = start.encode() + b",".join(part) + clause.encode()
            cursor.execute(cast(str, statement))  # bytes, since a payload need not be text

    def update(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        constants: Mapping[str, Any],
    ) -> None:
        # INSERT … ON DUPLICATE KEY UPDATE costs twice as much: each row fails as a new one first.
        key, *others = columns
        sets = [f"r.{name} = j.{name}".encode() for name in others]
        literals = values.literals(cursor.db, constants.values())
        sets += [b"r.%s = %s" % (n.encode(), v) for n, v in zip(constants, literals, strict=True)]
        start = f"UPDATE (WITH j({', '.join(columns)}) AS (VALUES ".encode()
        # The optimizer does not choose the order: with old statistics it may read the whole table.
        join = f"{self.ordered_join} {table} r {self.by_primary_key(cursor.db, table)}"
        end = f") SELECT * FROM j) AS j {join} ON r.{key} = j.{key} SET ".encode()  # noqa: S608
        word = self.row_word.encode()
        for part in values.statements(cursor.db, rows):
            statement = start + b",".join([word + row for row in part]) + end + b", ".join(sets)
            cursor.execute(cast(str, statement))

    # -- locks -----------------------------------------------------------------------------------
    def limit_lock_wait(self, connection: Connection, seconds: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SET innodb_lock_wait_timeout = %s, lock_wait_timeout = %s", [seconds, seconds]
            )

    @contextmanager
    def lock_wait(self, connection: Connection, seconds: int) -> Iterator[None]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@innodb_lock_wait_timeout")
            usual_seconds = cursor.fetchone()[0]
        self.limit_lock_wait(connection, seconds)
        try:
            yield
        finally:
            with suppress(Error):  # the next connection has its usual limit
                self.limit_lock_wait(connection, usual_seconds)

    def allow_idle_transactions(self, connection: Connection, seconds: int) -> None:
        connection.idle_transaction_seconds = seconds  # type: ignore[attr-defined]  # of `base.py`

    @contextmanager
    def lock_name(self, connection: Connection, name: str) -> Iterator[bool]:
        with connection.cursor() as cursor:
            # A lock's name is global to the server, so it contains the schema's name. MySQL allows
            # 64 characters.
            cursor.execute("SELECT DATABASE()")
            lock = f"{cursor.fetchone()[0]}.{name}"
            cursor.execute("SELECT GET_LOCK(SHA2(%s, 256), 0)", [lock])
            has_lock = cursor.fetchone()[0] == 1
            try:
                yield has_lock
            finally:
                if has_lock:
                    with suppress(Error):  # a session that is lost has no lock
                        cursor.execute("SELECT RELEASE_LOCK(SHA2(%s, 256))", [lock])

    # -- partitions ------------------------------------------------------------------------------
    def partitions(self, cursor: Any, table: str) -> list[tuple[str, str]]:
        cursor.execute(
            "SELECT partition_name, partition_description FROM information_schema.partitions"
            " WHERE table_schema = DATABASE() AND table_name = %s AND partition_name IS NOT NULL"
            " ORDER BY partition_ordinal_position",
            [table],
        )
        return list(cursor.fetchall())

    @contextmanager
    def lock_table(self, connection: Connection, table: str) -> Iterator[None]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@lock_wait_timeout")  # `migrate` has set one of its own
            ((seconds,),) = cursor.fetchall()
            # A process that freezes with the lock loses its connection.
            cursor.execute(
                f"SET SESSION lock_wait_timeout = {_TABLE_WAIT_SECONDS}, "
                f"wait_timeout = {IDLE_TRANSACTION_SECONDS}"
            )
            try:
                cursor.execute(f"LOCK TABLES `{table}` WRITE")
                yield
            finally:
                cursor.execute("UNLOCK TABLES")
                cursor.execute(f"SET SESSION lock_wait_timeout = {seconds}, wait_timeout = DEFAULT")

    # -- triggers --------------------------------------------------------------------------------
    trigger_time = "UTC_TIMESTAMP(6)"
    trigger_version = (
        "GREATEST(OLD.version + 1, TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP()))"
    )

    def insert_trigger(self, name: str, table: str, assignments: Mapping[str, str]) -> str:
        # A table's name may be a reserved word, as LEAD of MySQL is.
        clause = _set_clause(assignments)
        return f"CREATE TRIGGER {name} BEFORE INSERT ON `{table}` FOR EACH ROW {clause}"

    def update_trigger(
        self, name: str, table: str, assignments: Mapping[str, str], columns: Sequence[str]
    ) -> str:
        clause = _set_clause(assignments)
        return f"CREATE TRIGGER {name} BEFORE UPDATE ON `{table}` FOR EACH ROW {clause}"

    def triggers(self, cursor: Any, table: str) -> dict[str, tuple[str, str, str]]:
        cursor.execute(
            "SELECT TRIGGER_NAME, ACTION_STATEMENT, DEFINER, CURRENT_USER() "
            "FROM information_schema.TRIGGERS "
            "WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = %s",
            [table],
        )
        return {name: (body, definer, user) for name, body, definer, user in cursor.fetchall()}

    def trigger_body(self, statement: str) -> str:
        return statement.rpartition("FOR EACH ROW")[2]

    def refused_triggers(self, connection: Connection) -> str:
        return server.refused_triggers(connection)

    # -- the server ------------------------------------------------------------------------------
    def cluster(self, connection: Connection) -> Cluster | None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'wsrep_%%'", ())
            status = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
            if not status.get("wsrep_cluster_state_uuid", "").strip("0-"):
                return None
            cursor.execute("SELECT @@wsrep_cluster_address")
            (address,) = cursor.fetchone()
        names = address.partition("://")[2].partition("?")[0].split(",")
        return Cluster(
            state=status["wsrep_local_state_comment"],
            size=int(status["wsrep_cluster_size"]),
            expected=len([name for name in names if name]) or 1,
        )

    def running_statements(self, connection: Connection) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_running'")
            ((_, running),) = cursor.fetchall()
        return max(0, int(running) - 1)

    def running_connections(self, connection: Connection) -> set[int]:
        with connection.cursor() as cursor:

            def rows(statement: str) -> Sequence[tuple[Any, ...]]:
                cursor.execute(statement)
                answer: Sequence[tuple[Any, ...]] = cursor.fetchall()
                return answer

            numbers = rows(
                f"SELECT id FROM {server.processlist(rows)} "  # noqa: S608
                "WHERE command IN ('Query', 'Execute') AND id <> CONNECTION_ID()"
            )
            return {number for (number,) in numbers}

    def connection_id(self, connection: Connection) -> int:
        return 0 if connection.connection is None else int(connection.connection.thread_id())

    def refusal(self, connection: Connection) -> str:
        return server.refusal(connection, self.name, self.oldest_version)

    def problems(self, connection: Connection) -> Iterator[Problem]:
        return server.problems(connection)

    def settings(self, connection: Connection) -> Iterator[Problem]:
        return server.settings(connection)

    # -- databases of others ---------------------------------------------------------------------
    def existing_only(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return dict(config)

    def reading(self, config: Mapping[str, Any]) -> dict[str, Any]:
        # A hanging server delays a reader at most for these timeouts.
        options = {
            **self.writer_options,
            "init_command": "SET time_zone='+00:00'",  # other modes stay as the server has them
            "conv": values.conversions(),
        }
        return {**config, "OPTIONS": {**config["OPTIONS"], **options}}

    def only_read(self, connection: Connection) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")

    def describe(self, rows: Rows, table: str) -> tuple[list[Column], list[Index], bool]:
        columns = rows(
            "SELECT COLUMN_NAME, LOWER(DATA_TYPE), IS_NULLABLE FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            [table],
        )
        parts = rows(
            "SELECT INDEX_NAME, LOWER(COLUMN_NAME), NON_UNIQUE, TRUE "
            "/*!80000 AND IS_VISIBLE = 'YES' */ /*M!100600 AND `IGNORED` = 'NO' */ "
            "FROM information_schema.STATISTICS "
            "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
            [table],
        )
        kinds = rows(
            "SELECT TABLE_TYPE FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s",
            [table],
        )
        indexes: dict[str, Index] = {}
        for name, column, non_unique, is_usable in parts:
            columns_so_far = indexes[name].columns if name in indexes else ()
            indexes[name] = Index(name, (*columns_so_far, column), not non_unique, bool(is_usable))
        all_columns = [
            Column(name, _plain(kind), nullable == "YES") for name, kind, nullable in columns
        ]
        return all_columns, list(indexes.values()), list(kinds) == [("VIEW",)]

    def time_kinds(self, columns: Iterable[Any]) -> dict[str, str]:
        from MySQLdb.constants import FIELD_TYPE  # needs the driver

        kinds = {FIELD_TYPE.TIMESTAMP: "timestamp", FIELD_TYPE.DATETIME: "datetime",
                 FIELD_TYPE.DATE: "date"}  # fmt: skip
        return {c.name: kinds[c.type_code] for c in columns if c.type_code in kinds}

    def time_fault(self, rows: Rows, table: str, column: str) -> str:
        return ""

    def time_text(self, column: str) -> str:
        return f"CAST(CAST({column} AS DATETIME(6)) AS CHAR)"

    def seek_condition(self, time: str, key: str) -> tuple[str, tuple[int, ...]]:
        # A comparison of pairs would not use the index.
        return f"(({time} = %s AND {key} > %s) OR {time} > %s)", (0, 1, 0)


def _set_clause(assignments: Mapping[str, str]) -> str:
    return "SET " + ", ".join(f"NEW.{column} = {value}" for column, value in assignments.items())


def _plain(kind: str) -> str:
    """The plain type: `bigint` for `BIGINT(20) UNSIGNED`."""
    return kind.lower().partition("(")[0].split(" ")[0].removeprefix("long").removeprefix("medium")
