"""The triggers that set UpdateTime and version of every lead that is written.

Why triggers: a column's own `ON UPDATE CURRENT_TIMESTAMP` writes the session's time zone into a
DATETIME, gives way to whoever names the column (as `save()` does), and cannot count a version.
`auto_now` is skipped by `QuerySet.update()` and is the clock of the program, not of the database.

A version is at least the second (since 1970) of its change: after a restore a lead must not get
versions again that CRMs have seen already, with other values.

On a server the user that migrates needs the privilege TRIGGER, which ALL PRIVILEGES on the database
include, and not SUPER. Only a server with `log_bin_trust_function_creators = 0` and a binary log,
or a node of Galera, which emulates one, asks for SUPER when a trigger is made; `refused_beforehand`
looks for that. Triggers run with the rights of the user that made them, their definer. Without that
user, as after a restore on another server, each statement on `lead` fails (error 1449): so
`migrate` makes them anew whenever they are not its user's (`renew`). `UTC_TIMESTAMP(6)` is when the
statement began.

On SQLite only an UPDATE that names nothing but UpdateTime and version passes unseen. SQLite drops
triggers when Django makes a table anew: a migration that alters `lead` calls `create` again.
"""

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import OperationalError

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import NEEDS_TRIGGER, Engine, Fault
from msgplatform.core.errors import Permanent

_TABLE = "lead"
_MIGRATION = ("crmsync", "0002_triggers_and_partitions")
_NAMES = ("lead_on_insert", "lead_on_update")
_COLUMNS = ("id", "biz_id", "appkey", "uid", "name", "phone", "extra", "IsDelete")


def _statements(engine: Engine) -> tuple[str, str]:
    time, version = engine.trigger_time, engine.trigger_version
    values = {"UpdateTime": time, "version": "1"}
    changes = {"UpdateTime": time, "version": version}
    on_insert, on_update = _NAMES
    return (
        engine.insert_trigger(on_insert, _TABLE, values),
        engine.update_trigger(on_update, _TABLE, changes, _COLUMNS),
    )


class TriggerRefused(Permanent):
    """The database does not let this user make triggers."""


def problem(connection: BaseDatabaseWrapper) -> str:
    """Why the triggers do not do their work; '' when they do."""
    engine = engines.of_connection(connection)
    with connection.cursor() as cursor:
        triggers = engine.triggers(cursor, _TABLE)
    for name, statement in zip(_NAMES, _statements(engine), strict=True):
        if name not in triggers:
            return "triggers of the table lead are missing, so its changes are not noticed"
        body, definer, user = triggers[name]
        if body.split() != engine.trigger_body(statement).split():
            return f"the trigger {name} of the table lead is another release's"
        if definer != user:
            return (
                f"the triggers of the table lead run as {definer}, and this user is {user}: where "
                f"{definer} does not exist, every lead is refused"
            )
    return ""


def refused_beforehand(connection: BaseDatabaseWrapper) -> str:
    """The repair if the server would not let this user make the triggers, and they have to be made;
    else ''."""
    engine = engines.of_connection(connection)
    return engine.refused_triggers(connection) if problem(connection) else ""


def renew(using: str, **kwargs: Any) -> None:
    """After each `migrate`: make the triggers anew unless they are right, or not made yet. Raises
    TriggerRefused."""
    connection = connections[using]
    # Noted in every database that is migrated, also in one that has no table of leads.
    is_made = _MIGRATION in MigrationRecorder(connection).applied_migrations()
    has_leads = _TABLE in connection.introspection.table_names()
    if is_made and has_leads and problem(connection):
        # Programs work meanwhile, and no CRM would hear of a lead that changes between two
        # statements: it would keep its version.
        lock = engines.of_connection(connection).lock_table(connection, _TABLE)
        with lock, connection.schema_editor() as schema_editor:
            create(schema_editor)


def create(schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the triggers, anew if they are there. Raises TriggerRefused."""
    engine = engines.of_connection(schema_editor.connection)
    try:
        drop(schema_editor)
        for statement in _statements(engine):
            schema_editor.execute(statement, None)
    except OperationalError as error:
        if engines.fault(error) is not Fault.REFUSED:
            raise
        repair = engine.refused_triggers(schema_editor.connection) or NEEDS_TRIGGER
        raise TriggerRefused(
            f"The triggers of the table lead cannot be made ({error.args[1]}). {repair}. Then run "
            "migrate again."
        ) from error


def drop(schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in _NAMES:
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}", None)
