"""What the platform asks of a database. The methods that do nothing here do nothing on a file with
one writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

# A program that is frozen in the middle of a transaction holds locks. When it has said nothing for
# 10 s the server undoes the transaction and closes the connection (a statement itself may take
# 60 s); who waits for a lock repeats its step after 5 s (`transactions.retrying`).
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
    NO_FILE = auto()  # there is none, or it may not be opened
    NO_TABLE = auto()
    NO_COLUMN = auto()
    DAMAGED = auto()  # the file is none of a database
    UNREACHABLE = auto()  # nothing was sent
    LOST = auto()  # the connection broke; during COMMIT the outcome is not known
    LATER = auto()  # the statement is right and comes too early: locks, a restart, a full disk
    OUT_OF_RANGE = auto()
    VALUE = auto()  # the same statement fails each time, and others do not
    OTHER = auto()


class Problem(NamedTuple):
    """A property of a server or a database with which the platform does not work, or not well."""

    text: str
    repair: str
    id: str = ""  # of the system check; '' if only `doctor` reports it
    is_serious: bool = True  # False: it works, but not well


class Cluster(NamedTuple):
    """The state of a cluster (Galera) as one server of it says. `expected` is how many servers its
    configuration names, at least one."""

    state: str  # of this server: "Synced", "Donor/Desynced", "Joined" …
    size: int
    expected: int


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # lower case, without length
    nullable: bool


@dataclass(frozen=True, slots=True)
class Index:
    name: str  # PRIMARY: the primary key
    columns: tuple[str, ...]
    unique: bool


class Statements(NamedTuple):
    """The server's time (UTC, as text), and what ran when it was read. `longest_seconds` is that of
    the statement which may write and has run for the longest time; None without one."""

    now: str
    longest_seconds: int | None
    is_replica: bool


class Activity(Protocol):
    """What a server does at a moment, as far as its user may see it: the horizon of a source."""

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
        """True if the server's list was made at `since` (whole seconds), when the caller's own
        transaction began, or later; and when the oldest open transaction began that has written
        (UTC, as text), None when there is none."""


class Engine(Protocol):
    """SQL that a method returns is for a cursor with parameters: a literal % is doubled. A method
    with a connection, a cursor or `rows` asks the database, and raises what that raises."""

    name: str
    # Programs of several machines write at the same time; to a file, one writer at a time.
    is_server: bool
    has_partitions: bool
    # A moment is stored in one way only, so that times sort as they are stored.
    has_exact_times: bool
    # An upsert finds a row by any unique key, not only by the one that it names.
    finds_rows_by_any_key: bool
    # The least by which two times of the database's clock differ, see `now`.
    clock_step: timedelta
    # Of columns that are compared byte by byte; None: columns without a collation are.
    exact_collation: str | None
    # A join for which the database keeps the order in which the tables are written.
    ordered_join: str
    # The server's own programs, its own before those of the other one; a file needs none.
    dump_programs: Sequence[str] = ()
    load_programs: Sequence[str] = ()
    row_word: str = ""  # before each row of a table that VALUES makes
    # Behind a SELECT: shared locks, and locks that pass over rows which others have locked. The
    # only writer needs none.
    share_lock: str = ""
    skip_locked: str = ""
    bytes_type: str  # of CAST, by which a text is read as bytes, whatever its encoding
    explain: str  # before a statement: its plan
    begin: str  # a transaction that will write
    backend: str  # Django's ENGINE for our own databases
    # Django's OPTIONS for our own databases, and for writing into those of others.
    options: dict[str, Any]
    writer_options: dict[str, Any]
    time_types: frozenset[str]  # of columns that hold a date with a time
    activity: Activity | None = None  # a file has none: whoever holds its lock is the only writer

    def __str__(self) -> str:
        return self.name

    def fault(self, error: BaseException) -> Fault: ...

    # -- words -----------------------------------------------------------------------------------
    def now(self, seconds: float = 0.0) -> str:
        """The present time (UTC), `seconds` later or earlier, as models store it."""

    def age(self, time: str) -> str:
        """The seconds since a time (UTC)."""

    def checksum(self, columns: Iterable[str]) -> str | None:
        """An expression that has another value when one of these columns, or expressions, has; with
        a probability of 2^-32 it does not. None where the database has no checksums."""
        return None

    def sum_of_checksums(self, columns: Iterable[str]) -> str | None:
        """As `checksum`, for all rows of a group."""
        return None

    def force_index(self, index: str) -> str:
        """Behind a table's name: rows are found by this index, whatever statistics say. It must be
        able to answer the statement. PRIMARY is the primary key."""

    def by_primary_key(self, connection: Connection, table: str) -> str:
        """Behind a table's name, in an UPDATE too: rows are found by primary key."""

    def delete_by_key(self, table: str) -> str:
        """A DELETE by primary key, up to WHERE."""

    def branch(self, select: str) -> str:
        """A SELECT with an order and a limit of its own, as a part of a UNION."""

    def choice(self, column: str, ids: Sequence[int]) -> str:
        """A column's new value: a place for each of these ids, the old value for others."""

    def contains(self, column: str) -> str:
        """True if the bytes of a column contain those of a parameter that `bytes_of` made."""

    def bytes_of(self, text: str) -> str | bytes:
        """The parameter by which a text is compared with a column of bytes."""

    def exact(self, text: str) -> str:
        """A text as bytes of one character set, whatever that of its column is."""

    def begins_with(self, column: str, prefix: str) -> dict[str, str]:
        """Conditions for `filter()` that an index of the column answers."""

    def equals(self, column: str, value: Any) -> dict[str, Any]:
        """Conditions for `filter()`, for an index that has the column first, and then one that is
        compared with a cursor."""

    # -- writing ---------------------------------------------------------------------------------
    def upsert(self, key: Sequence[str]) -> str:
        """Behind the rows of an INSERT, before assignments to rows with the same key. MariaDB
        assigns in their order, and each expression sees the values assigned before it."""

    def new_value(self, column: str) -> str:
        """In an assignment of `upsert`: the value that would have been inserted."""

    def keep(self, table: str, column: str) -> str:
        """Behind the rows of an INSERT: rows whose key exists stay as they are. `column` is any of
        the table."""

    def keep_newer(self, table: str, columns: Sequence[str], is_number: bool) -> str:
        """Behind the rows of an INSERT: a row with exactly this key takes the new values unless its
        version is greater. The first of `columns` is the key, a text unless `is_number`, and the
        last one the version; all names are quoted."""

    def insert(
        self, cursor: Any, start: str, rows: Sequence[Row], clause: str = "", end: Row = ()
    ) -> None:
        """Insert rows, each with the values of `end` behind its own, many in one statement, between
        `start`, which ends with VALUES, and `clause`."""
        return

    def overwrite_deleted(self, connection: Connection) -> None:
        """Overwrite what this connection deletes from now on, where that would stay in a file."""
        return

    def clear_log(self, connection: Connection) -> None:
        """Remove overwritten values from a log that holds them; not within a transaction."""
        return

    # -- locks -----------------------------------------------------------------------------------
    def limit_lock_wait(self, connection: Connection, seconds: int) -> None:
        """Wait at most so long for a lock that somebody else has, in this session."""

    def allow_idle_transactions(self, connection: Connection, seconds: int) -> None:
        """Let a transaction of this session be idle for so long before the server undoes it."""
        return

    def lock_name(self, connection: Connection, name: str) -> AbstractContextManager[bool]:
        """Yields True while no other session locks this name in this database. Always true where
        tables are not altered: rows may be deleted twice."""
        return nullcontext(True)

    # -- partitions ------------------------------------------------------------------------------
    def partitions(self, cursor: Any, table: str) -> list[tuple[str, str]]:
        """Name and bound of each partition, oldest first."""
        return []

    def lock_table(self, connection: Connection, table: str) -> AbstractContextManager[None]:
        """Within, nobody else can read or write the table, and it can be altered. Raises the error
        of a lock after 2 s in which somebody kept it in use."""
        return nullcontext()

    # -- triggers --------------------------------------------------------------------------------
    def insert_trigger(self, name: str, table: str, values: Mapping[str, str]) -> str:
        """The statement for a trigger that gives a new row these values."""

    def update_trigger(
        self, name: str, table: str, values: Mapping[str, str], columns: Sequence[str]
    ) -> str:
        """As `insert_trigger`, for changes of rows, at least those of `columns`."""

    # In a trigger: the time of the statement (UTC), as models store it; and the version of the row
    # before, plus one, or the seconds since 1970 if those are more.
    trigger_time: str
    trigger_version: str

    def triggers(self, cursor: Any, table: str) -> dict[str, tuple[str, str, str]]:
        """Name → body, definer, and the user who asks; both '' on a database without users."""

    def trigger_body(self, statement: str) -> str:
        """The part of a statement that `triggers` gives back."""

    def refused_triggers(self, connection: Connection) -> str:
        """The repair if the server does not let this user make triggers; '' if it does."""
        return ""

    # -- the server ------------------------------------------------------------------------------
    question: str = "SELECT 1"  # only a server that works answers it

    def cluster(self, connection: Connection) -> Cluster | None:
        """The cluster to which the server belongs; None for a server on its own."""
        return None

    def running_statements(self, connection: Connection) -> int:
        """How many statements the server runs now, without this one. Needs no privilege."""
        return 0

    def running_connections(self, connection: Connection) -> set[int]:
        """The connections that run a statement now, without this one. Those of other users are seen
        with the privilege PROCESS only."""
        return set()

    def connection_id(self, connection: Connection) -> int:
        """The server's number of a connection; 0 when it is not open. Asks nobody."""
        return 0

    def refusal(self, connection: Connection) -> str:
        """The reason why the platform cannot work on this server; '' if it can."""
        return ""

    def problems(self, connection: Connection) -> Iterator[Problem]:
        """Problems that keep the platform's tables from being made, or used."""
        return iter(())

    def settings(self, connection: Connection) -> Iterator[Problem]:
        """Settings of the server by which accepted messages may be lost, or large ones refused."""
        return iter(())

    # -- databases of others ---------------------------------------------------------------------
    def existing_only(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The entry of DATABASES for a database that is not made if it does not exist."""

    def reading(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The entry of DATABASES for sessions that only read; call `only_read` for each."""

    def only_read(self, connection: Connection) -> None:
        """Let a new session read only, whatever its user may do."""
        return

    def describe(self, rows: Rows, table: str) -> tuple[list[Column], list[Index], bool]:
        """Columns and indexes of a table, and whether it is a view, which has no indexes. There are
        no columns if there is no such table, or it may not be read."""

    def time_kinds(self, columns: Iterable[Any]) -> dict[str, str]:
        """Columns of Django's introspection that hold times → "timestamp" (a moment, in the
        session's zone), "datetime" or "date"."""
        return {}

    def time_fault(self, rows: Rows, table: str, column: str) -> str:
        """The reason why times of a column do not sort as times; both names are quoted."""

    def time_text(self, column: str) -> str:
        """A column's time as text."""

    def seek_condition(self, time: str, key: str) -> tuple[str, tuple[int, ...]]:
        """The condition for rows behind a time and key, and for each place of it 0 (the time) or 1
        (the key)."""
