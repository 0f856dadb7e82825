"""The requests of the platform to a database. Methods without effect here have none on a file with
one writer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import msgspec
from django.db.backends.base.base import BaseDatabaseWrapper

# A program that freezes in a transaction holds locks. After 10 s without a statement the server
# rolls back and closes the connection (one statement may take 60 s). A program that waits 5 s for a
# lock repeats its step (`transactions.retrying`).
IDLE_TRANSACTION_SECONDS, LOCK_WAIT_SECONDS, STATEMENT_SECONDS = 10, 5, 60

NEEDS_TRIGGER = "Grant TRIGGER on the database to this user"

Connection = BaseDatabaseWrapper
Row = Sequence[Any]
# Runs a statement with parameters, and returns its rows.
Rows = Callable[..., Sequence[tuple[Any, ...]]]


class Fault(Enum):
    """The meaning of a database's error."""

    REFUSED = auto()  # credentials, privileges
    NO_DATABASE = auto()
    NO_FILE = auto()  # the database does not exist, or may not be opened
    NO_TABLE = auto()
    NO_COLUMN = auto()
    DAMAGED = auto()  # the file is none of a database
    LOG_FORMAT = auto()  # the server's binary log cannot keep the platform's statements
    UNREACHABLE = auto()  # nothing was sent
    LOST = auto()  # the connection broke; during COMMIT the outcome is not known
    LATER = auto()  # the statement is right and comes too early: locks, a restart, a full disk
    OUT_OF_RANGE = auto()
    VALUE = auto()  # only this statement fails, each time
    OTHER = auto()


class Problem(NamedTuple):
    """A property of a server or a database that keeps the platform from working (well)."""

    text: str
    repair: str
    id: str = ""  # of the system check; '' if only `doctor` reports it
    is_serious: bool = True  # False: the platform works, but not well


class Cluster(NamedTuple):
    """The state of a cluster (Galera), reported by one server. `expected` is the number of servers
    in the configuration, at least one."""

    state: str  # of this server: "Synced", "Donor/Desynced", "Joined" …
    size: int
    expected: int


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str  # lower case, without length
    nullable: bool


class Index(msgspec.Struct, frozen=True):
    name: str  # PRIMARY: the primary key
    columns: tuple[str, ...]
    unique: bool
    is_usable: bool = True  # False: made invisible or ignored; a hint that names it is an error


class Statements(NamedTuple):
    """The server's time (UTC, as text), and the statements at that time. `longest_seconds` is the
    time of the longest running statement that may write; None without one."""

    now: str
    longest_seconds: int | None
    is_replica: bool


class Activity(Protocol):
    """The present work of a server, as far as the user may see it; for the horizon of a source."""

    # The clock of transactions can lag behind that of statements.
    clock_lag: timedelta

    def now(self, rows: Rows) -> str:
        """The server's time (UTC)."""

    def identity(self, rows: Rows) -> str:
        """The name of the server and of the user, whose privileges decide what is seen."""

    def is_in_cluster(self, rows: Rows) -> bool:
        """True if other servers take writes too."""

    def statements(self, rows: Rows) -> Statements: ...

    def oldest_transaction(self, rows: Rows, since: datetime) -> tuple[bool, str | None]:
        """True if the server's list is not older than `since` (whole seconds), the beginning of the
        caller's own transaction; and the beginning of the oldest open transaction that has written
        (UTC, as text), or None."""


class Engine(Protocol):
    """Returned SQL is for a cursor with parameters: a literal % is doubled. A method with a
    connection, a cursor or `rows` asks the database, and raises the database's errors."""

    name: str
    # True if several machines may write at the same time; a file has one writer at a time.
    is_server: bool
    has_partitions: bool
    # True if a moment has only one stored form, so that stored times sort correctly.
    has_exact_times: bool
    # True if an upsert finds a row by any unique key, not only by the named key.
    finds_rows_by_any_key: bool
    # The smallest difference of two times of the database's clock, see `now`.
    clock_step: timedelta
    # The collation that compares byte by byte; None: columns without a collation do.
    exact_collation: str | None
    # A join that keeps the written order of the tables.
    ordered_join: str
    # Names of the client programs, the engine's own first; a file needs none.
    dump_programs: Sequence[str] = ()
    load_programs: Sequence[str] = ()
    row_word: str = ""  # before each row of VALUES as a table
    # After a SELECT: shared locks; locks that skip locked rows. A single writer needs none.
    share_lock: str = ""
    skip_locked: str = ""
    bytes_type: str  # type for CAST of a text to bytes
    explain: str  # before a statement, to get its plan
    begin: str  # begins a transaction that will write
    backend: str  # Django's ENGINE for our own databases
    # Django's OPTIONS for our own databases, and for writing into other systems' databases.
    options: dict[str, Any]
    writer_options: dict[str, Any]
    # Names that the query of a database's URL may have: those of OPTIONS.
    option_names: frozenset[str]
    time_types: frozenset[str]  # types of columns with date and time
    activity: Activity | None = None  # a file has no activity: its lock admits one writer

    def __str__(self) -> str:
        return self.name

    def fault(self, error: BaseException) -> Fault: ...

    # -- words -----------------------------------------------------------------------------------
    def now(self, seconds: float = 0.0) -> str:
        """The present time (UTC) plus `seconds`, as models store it."""

    def age(self, time: str) -> str:
        """The seconds since a time (UTC)."""

    def checksum(self, columns: Iterable[str]) -> str | None:
        """An expression that changes when one of these columns or expressions changes (but for a
        chance of 2^-32). None if the database has no checksums."""
        return None

    def sum_of_checksums(self, columns: Iterable[str]) -> str | None:
        """Like `checksum`, for all rows of a group."""
        return None

    def force_index(self, index: str) -> str:
        """A hint after a table's name: find rows by this index, in spite of statistics. The index
        must be able to answer the statement. PRIMARY is the primary key."""

    def by_primary_key(self, connection: Connection, table: str) -> str:
        """A hint after a table's name, in an UPDATE too: find rows by primary key."""

    def delete_by_key(self, table: str) -> str:
        """A DELETE by primary key, up to WHERE."""

    def branch(self, select: str) -> str:
        """A SELECT with its own order and limit, as a part of a UNION."""

    def choice(self, column: str, ids: Sequence[int]) -> str:
        """A column's new value: a placeholder for each of these ids, the old value for other
        rows."""

    def contains(self, column: str) -> str:
        """The condition that a column's bytes contain the bytes of a parameter from `bytes_of`."""

    def bytes_of(self, text: str) -> str | bytes:
        """The parameter by which a text is compared with a column of bytes."""

    def exact(self, text: str) -> str:
        """A text as bytes of one character set, for a column of any character set."""

    def begins_with(self, column: str, prefix: str) -> dict[str, str]:
        """Conditions for `filter()` that an index of the column answers."""

    def equals(self, column: str, value: Any) -> dict[str, Any]:
        """Conditions for `filter()`, for an index with this column and then a column that is
        compared with a cursor."""

    # -- writing ---------------------------------------------------------------------------------
    def upsert(self, key: Sequence[str]) -> str:
        """The clause after the rows of an INSERT, before assignments to rows with the same key.
        MariaDB assigns in order, and each expression sees the values that were assigned before."""

    def new_value(self, column: str) -> str:
        """The value to be inserted, for an assignment of `upsert`."""

    def keep(self, table: str, column: str) -> str:
        """The clause after the rows of an INSERT that leaves rows with an existing key as they are.
        `column` is any column of the table."""

    def keep_newer(self, table: str, columns: Sequence[str], is_number: bool) -> str:
        """The clause after the rows of an INSERT: an existing row with exactly this key takes the
        new values unless its version is greater. The first of `columns` is the key (a text unless
        `is_number`), the last one the version; all names are quoted."""

    def insert(
        self, cursor: Any, start: str, rows: Sequence[Row], clause: str = "", end: Row = ()
    ) -> None:
        """Insert rows, each followed by the values of `end`, many in one statement, between
        `start`, which ends with VALUES, and `clause`."""
        return

    def update(
        self,
        cursor: Any,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        constants: Mapping[str, Any],
    ) -> None:
        """Update the rows that exist, many in one statement; the first of `columns` is the primary
        key. `constants` are further columns with the same value in every row; names are quoted."""
        return

    def overwrite_deleted(self, connection: Connection) -> None:
        """Overwrite data that this connection deletes from now on, if it would stay in a file."""
        return

    def clear_log(self, connection: Connection) -> None:
        """Remove overwritten values from the database's log; not within a transaction."""
        return

    # -- locks -----------------------------------------------------------------------------------
    def limit_lock_wait(self, connection: Connection, seconds: int) -> None:
        """Set how long this session waits for a lock of another session."""

    @contextmanager
    def lock_wait(self, connection: Connection, seconds: int) -> Iterator[None]:
        """Inside, this session waits so long for a lock on a row. Nothing changes where rows have
        no locks of their own."""
        yield

    def allow_idle_transactions(self, connection: Connection, seconds: int) -> None:
        """Set how long a transaction of this session may be idle before the server rolls it
        back."""
        return

    def lock_name(self, connection: Connection, name: str) -> AbstractContextManager[bool]:
        """Yields True while no other session locks this name in this database. Always True on
        SQLite: deleting rows twice does no harm, and a failed migration is rolled back."""
        return nullcontext(True)

    # -- partitions ------------------------------------------------------------------------------
    def partitions(self, cursor: Any, table: str) -> list[tuple[str, str]]:
        """Name and bound of each partition, oldest first."""
        return []

    def lock_table(self, connection: Connection, table: str) -> AbstractContextManager[None]:
        """In the block only this session can read, write and alter the table. Raises a lock error
        if other sessions keep the table in use for 2 s."""
        return nullcontext()

    # -- triggers --------------------------------------------------------------------------------
    def insert_trigger(self, name: str, table: str, assignments: Mapping[str, str]) -> str:
        """The statement for a trigger that gives a new row these values: column → expression."""

    def update_trigger(
        self, name: str, table: str, assignments: Mapping[str, str], columns: Sequence[str]
    ) -> str:
        """Like `insert_trigger`, for updates of rows, at least updates of `columns`."""

    # Expressions in a trigger: the statement's time (UTC), as models store it; and the greater of
    # the row's old version plus one and the seconds since 1970.
    trigger_time: str
    trigger_version: str

    def triggers(self, cursor: Any, table: str) -> dict[str, tuple[str, str, str]]:
        """Name → body, definer, present user; both users are '' on a database without users."""

    def trigger_body(self, statement: str) -> str:
        """The part of a statement that `triggers` gives back."""

    def refused_triggers(self, connection: Connection) -> str:
        """The repair if this user may not make triggers; '' if the user may."""
        return ""

    # -- the server ------------------------------------------------------------------------------
    question: str = "SELECT 1"  # only a working server answers

    def cluster(self, connection: Connection) -> Cluster | None:
        """The server's cluster; None for a single server."""
        return None

    def running_statements(self, connection: Connection) -> int:
        """The number of statements that the server runs now, without this one. Needs no
        privilege."""
        return 0

    def running_connections(self, connection: Connection) -> set[int]:
        """The connections that run a statement now, without this one. Connections of other users
        need the privilege PROCESS."""
        return set()

    def connection_id(self, connection: Connection) -> int:
        """The server's number of a connection; 0 if it is not open. Sends no statement."""
        return 0

    def refusal(self, connection: Connection) -> str:
        """The reason why the platform cannot work on this server; '' if it can."""
        return ""

    def problems(self, connection: Connection) -> Iterator[Problem]:
        """Problems that keep the platform from making or using its tables."""
        return iter(())

    def settings(self, connection: Connection) -> Iterator[Problem]:
        """Settings of the server that may lose accepted messages, or refuse large ones."""
        return iter(())

    # -- databases of others ---------------------------------------------------------------------
    def existing_only(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The entry of DATABASES for an existing database: a missing file is not created."""

    def reading(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The entry of DATABASES for read-only sessions; call `only_read` for each session."""

    def only_read(self, connection: Connection) -> None:
        """Make a new session read-only, whatever the user's privileges."""
        return

    def describe(self, rows: Rows, table: str) -> tuple[list[Column], list[Index], bool]:
        """The table's columns, its indexes, and True for a view (without indexes). There are no
        columns if the table does not exist, or may not be read."""

    def time_kinds(self, columns: Iterable[Any]) -> dict[str, str]:
        """Columns of Django's introspection that hold times → "timestamp" (a moment, in the
        session's zone), "datetime" or "date"."""
        return {}

    def time_fault(self, rows: Rows, table: str, column: str) -> str:
        """Why a column's values do not sort as times; both names are quoted."""

    def time_text(self, column: str) -> str:
        """A column's time as text."""

    def seek_condition(self, time: str, key: str) -> tuple[str, tuple[int, ...]]:
        """The condition for rows after a time and key, and for each of its placeholders 0 (the
        time) or 1 (the key)."""
