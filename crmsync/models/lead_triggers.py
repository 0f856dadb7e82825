"""The triggers that set UpdateTime and version of every lead that is written.

Why triggers: a column's own `ON UPDATE CURRENT_TIMESTAMP` writes the session's time zone into a
DATETIME, gives way to whoever names the column (as `save()` does), and cannot count a version.
`auto_now` is skipped by `QuerySet.update()` and is the clock of the program, not of the database.

A version is at least the second (since 1970) of its change: after a restore a lead must not get
versions again that CRMs have seen already, with other values.

On MariaDB the user that migrates needs the privilege TRIGGER, which ALL PRIVILEGES on the database
include, and not SUPER. Only a server with a binary log and `log_bin_trust_function_creators = 0`
asks for SUPER when a trigger is made; `create` then says what to set. Triggers run with the
rights of that user, so it has to stay. `UTC_TIMESTAMP(6)` is when the statement began.

SQLite's clock has milliseconds. The text ends with `001`, because Django writes a time without
microseconds shorter, and texts of different length compare wrongly. Only an UPDATE that names
nothing but UpdateTime and version passes unseen there. SQLite drops triggers when Django makes a
table anew: a migration that alters `lead` calls `create` again.
"""

from __future__ import annotations

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.utils import OperationalError

from msgplatform.core.data import transactions
from msgplatform.core.errors import Permanent

# No TRIGGER privilege; the binary log asks for SUPER.
_REFUSED = {1142, 1227, 1419}
_NAMES = ("lead_on_insert", "lead_on_update")
_MYSQL = (
    "CREATE TRIGGER lead_on_insert BEFORE INSERT ON lead FOR EACH ROW "
    "SET NEW.UpdateTime = UTC_TIMESTAMP(6), NEW.version = 1",
    "CREATE TRIGGER lead_on_update BEFORE UPDATE ON lead FOR EACH ROW "
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


class TriggerRefused(Permanent):
    """The database does not let this user make triggers."""


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
            f"the triggers of the table lead cannot be made ({error.args[1]}): grant TRIGGER on "
            "the database to this user; with a binary log also set "
            "log_bin_trust_function_creators = 1, or migrate once as a user with SUPER. Then "
            "run migrate again."
        ) from error


def drop(schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in _NAMES:
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}", None)
