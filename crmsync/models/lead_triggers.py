"""The triggers that set UpdateTime and version of every lead that is written.

Why triggers: a column's own `ON UPDATE CURRENT_TIMESTAMP` writes the session's time zone into a
DATETIME, gives way to whoever names the column (as `save()` does), and cannot count a version.
`auto_now` is skipped by `QuerySet.update()` and is the clock of the program, not of the database.

A version is at least the second (since 1970) of its change: after a restore a lead must not get
versions again that CRMs have seen already, with other values.

On MariaDB the user that migrates needs the privilege TRIGGER, which ALL PRIVILEGES on the database
include, and not SUPER. Only a server with `log_bin_trust_function_creators = 0` and a binary log,
or a node of Galera, which emulates one, asks for SUPER when a trigger is made; `refused_beforehand`
looks for that. Triggers run with the rights of the user that made them, their definer. Without that
user, as after a restore on another server, each statement on `lead` fails (error 1449): so
`migrate` makes them anew whenever they are not its user's (`renew`). `UTC_TIMESTAMP(6)` is when the
statement began.

SQLite's clock has milliseconds. The text ends with `001`, because Django writes a time without
microseconds shorter, and texts of different length compare wrongly. Only an UPDATE that names
nothing but UpdateTime and version passes unseen there. SQLite drops triggers when Django makes a
table anew: a migration that alters `lead` calls `create` again.
"""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import OperationalError

from msgplatform.core.data import transactions
from msgplatform.core.errors import Permanent

# No TRIGGER privilege; the binary log asks for SUPER.
_REFUSED = {1142, 1227, 1419}
_TABLE = "lead"
_MIGRATION = ("crmsync", "0002_triggers_and_partitions")
_NAMES = ("lead_on_insert", "lead_on_update")
_MYSQL = (
    # LEAD is a reserved word of MySQL.
    "CREATE TRIGGER lead_on_insert BEFORE INSERT ON `lead` FOR EACH ROW "
    "SET NEW.UpdateTime = UTC_TIMESTAMP(6), NEW.version = 1",
    "CREATE TRIGGER lead_on_update BEFORE UPDATE ON `lead` FOR EACH ROW "
    "SET NEW.UpdateTime = UTC_TIMESTAMP(6), NEW.version = "
    "GREATEST(OLD.version + 1, TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP()))",
)
_SQLITE = (
    "CREATE TRIGGER lead_on_insert AFTER INSERT ON lead BEGIN "
    """UPDATE lead SET "UpdateTime" = strftime('%Y-%m-%d %H:%M:%f', 'now') || '001', """
    "version = 1 WHERE id = NEW.id; END",
    # Not of UpdateTime and version: the trigger above would set this one off.
    "CREATE TRIGGER lead_on_update AFTER UPDATE OF "
    'id, biz_id, appkey, uid, name, phone, extra, "IsDelete" ON lead BEGIN '
    """UPDATE lead SET "UpdateTime" = strftime('%Y-%m-%d %H:%M:%f', 'now') || '001', """
    "version = MAX(OLD.version + 1, CAST(strftime('%s', 'now') AS INTEGER)) WHERE id = NEW.id; END",
)


_STORED_MYSQL = (
    "SELECT TRIGGER_NAME, ACTION_STATEMENT, DEFINER, CURRENT_USER() FROM "
    "information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = %s"
)
_STORED_SQLITE = (
    "SELECT name, sql, '', '' FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s"
)
_BINARY_LOG = (
    # MySQL skips what is between /*M! and */. @@wsrep_on would be an error of a MariaDB that was
    # built without Galera.
    "SELECT (@@log_bin /*M! OR EXISTS (SELECT 1 FROM information_schema.GLOBAL_VARIABLES "
    "WHERE VARIABLE_NAME = 'WSREP_ON' AND VARIABLE_VALUE = 'ON') */) "
    "AND NOT @@log_bin_trust_function_creators AND NOT EXISTS ("
    "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SUPER' AND "
    """GRANTEE = CONCAT("'", SUBSTRING_INDEX(CURRENT_USER(), '@', 1), "'@'", """
    """SUBSTRING_INDEX(CURRENT_USER(), '@', -1), "'"))"""
)
BINARY_LOG_REPAIR = (
    "SET GLOBAL log_bin_trust_function_creators = 1 as an administrator (of Galera on every node), "
    "or grant SUPER to this user, until migrate has run"
)


class TriggerRefused(Permanent):
    """The database does not let this user make triggers."""


def problem(connection: BaseDatabaseWrapper) -> str:
    """Why the triggers do not do their work; '' when they do."""
    is_mysql = connection.vendor == "mysql"
    with connection.cursor() as cursor:
        cursor.execute(_STORED_MYSQL if is_mysql else _STORED_SQLITE, [_TABLE])
        triggers = {name: (body, definer, user) for name, body, definer, user in cursor.fetchall()}
    for name, statement in zip(_NAMES, _MYSQL if is_mysql else _SQLITE, strict=True):
        if name not in triggers:
            return "triggers of the table lead are missing, so its changes are not noticed"
        body, definer, user = triggers[name]
        if body.split() != statement.rpartition("FOR EACH ROW")[2].split():
            return f"the trigger {name} of the table lead is another release's"
        if definer != user:
            return (
                f"the triggers of the table lead run as {definer}, and this user is {user}: where "
                f"{definer} does not exist, every lead is refused"
            )
    return ""


def refused_beforehand(connection: BaseDatabaseWrapper) -> bool:
    """True if the server would not let this user make the triggers, and they have to be made."""
    if connection.vendor != "mysql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(_BINARY_LOG)
        ((is_refused,),) = cursor.fetchall()
    return bool(is_refused) and bool(problem(connection))


def renew(using: str, **kwargs: Any) -> None:
    """After each `migrate`: make the triggers anew unless they are right, or not made yet. Raises
    TriggerRefused."""
    connection = connections[using]
    # Noted in every database that is migrated, also in one that has no table of leads.
    is_made = _MIGRATION in MigrationRecorder(connection).applied_migrations()
    has_leads = _TABLE in connection.introspection.table_names()
    if is_made and has_leads and problem(connection):
        with connection.schema_editor() as schema_editor:
            create(schema_editor)


def create(schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the triggers, anew if they are there. Raises TriggerRefused."""
    statements = _MYSQL if schema_editor.connection.vendor == "mysql" else _SQLITE
    try:
        drop(schema_editor)
        for statement in statements:
            schema_editor.execute(statement, None)
    except OperationalError as error:
        if transactions.error_code(error) not in _REFUSED:
            raise
        raise TriggerRefused(
            f"The triggers of the table lead cannot be made ({error.args[1]}). Grant TRIGGER on "
            f"the database to this user. With a binary log, or Galera: {BINARY_LOG_REPAIR}. Then "
            "run migrate again."
        ) from error


def drop(schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in _NAMES:
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}", None)
