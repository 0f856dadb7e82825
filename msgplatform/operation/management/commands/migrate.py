"""Django's `migrate` in two stages (`core/data/migration_stages.py`), without the time limit for a
statement.

The platform's own errors are shown as one sentence. A database whose load was cut short is refused.
A new database belongs to the cell that CELL names.

The server goes on with a statement after its client has given up: a large table would be changed,
but the migration not noted as applied, so that it could never be applied again.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import DatabaseError, NotSupportedError, connections
from django.db.migrations.loader import MigrationLoader

from msgplatform import __version__
from msgplatform.core import cells
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats
from msgplatform.core.data import cell_record, engines, migration_stages, transactions
from msgplatform.core.errors import PlatformError

# A statement that waits for a table's lock makes later statements of programs wait, so it gives up
# soon and comes again: a dump may hold the lock for minutes.
_LOCK_SECONDS, _PAUSE_SECONDS, _PATIENCE_SECONDS = 1, 1.0, 900.0
_LOCKED = 1205  # MySQL's error: a statement waited too long for a lock, and was not begun
_LIMITS = ("read_timeout", "write_timeout")
_APPLIED = {"contenttypes": "0002"}  # surely applied, and nothing is applied for it
# MySQL's errors: a table, column or key exists already, or one to be dropped does not.
_HALF_DONE = frozenset({1050, 1051, 1060, 1061, 1091})


class Command(migrate.Command):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        stages = parser.add_mutually_exclusive_group()
        stages.add_argument(
            "--before", action="store_true",
            help="apply migrations that the programs of the release before do not mind",
        )  # fmt: skip
        stages.add_argument(
            "--after", action="store_true",
            help="apply the others, once no program of the release before is left",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        options_before = connection.settings_dict["OPTIONS"]
        patient = {name: value for name, value in options_before.items() if name not in _LIMITS}
        if patient == options_before:
            self._migrate(*args, **options)
            return
        connection.close()  # a connection keeps the time limits with which it was opened
        connection.settings_dict["OPTIONS"] = patient
        try:
            self._migrate(*args, **options)
        finally:
            connection.close()
            connection.settings_dict["OPTIONS"] = options_before

    def _migrate(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        is_dry = options["plan"] or options["check_unapplied"]
        try:
            # A second `migrate --before` would take back what the first has just added.
            lock = engines.of_connection(connection).lock_name(connection, "migrate")
            with nullcontext(True) if is_dry else lock as is_alone:
                if not is_alone:
                    raise CommandError(
                        "Another migrate runs on this database, or the server is not done with a "
                        "statement of one that was killed. Wait for it, and run this again."
                    )
                self._apply(*args, **options)
        except (PlatformError, NotSupportedError) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            # MySQL and MariaDB commit each change of a table at once.
            if transactions.error_code(error) not in _HALF_DONE:
                raise
            if options["before"]:
                raise CommandError(
                    f"{error.args[1]}: a migrate was killed within a migration. No program "
                    "uses yet what it added: drop that (names are in the message), run it again."
                ) from error
            raise CommandError(
                f"{error.args[1]}: a migrate was killed in the middle of a migration, tables of "
                "another release are there, or another migrate runs at this moment. Wait until no "
                "other one runs, and run it again. If it says this again: drop the database, "
                "restore the backup from before the update (docs/backup.md, To restore)."
            ) from error

    def _apply(self, *args: Any, **options: Any) -> None:
        if options["before"] and options["app_label"]:
            raise CommandError("--before takes no names: it applies the migrations of every app.")
        connection = connections[options["database"]]
        if missing := migration_stages.missing_tables(connection):
            raise CommandError(missing)
        is_new = not connection.introspection.table_names()
        loader = MigrationLoader(connection)
        early, late = migration_stages.split(loader)
        is_partial = options["plan"] or options["check_unapplied"] or options["app_label"]
        if late and not (options["before"] or is_partial):
            try:
                releases = heartbeats.roles_by_release(heartbeats.alive())
            except RedisError as error:
                if options["after"]:
                    text = f"It is not known which programs run: {error}"
                    raise CommandError(text) from error
                releases = {}  # a platform that has not started runs none
            for release in releases.keys() - {__version__}:
                raise CommandError(
                    f"Programs of release {release} run and need what would be removed: "
                    f"{', '.join(releases[release])}. Finish the update, or stop them."
                )
        if options["before"] and not is_new:
            for app, name in late:
                if not migration_stages.is_after(loader.graph.nodes[app, name]):
                    raise CommandError(
                        f"The programs need {app}.{name}, which needs migrations that are left "
                        "since the update before: run migrate --after of the release that runs, "
                        "first."
                    )
            engines.of(connection.alias).limit_lock_wait(connection, _LOCK_SECONDS)
            undo = migration_stages.Undo(connection, early)
            try:
                with connection.execute_wrapper(_repeat_while_locked):
                    # App by app: Django's `migrate` goes to the end, or to one name. Without any it
                    # still has to renew roles and triggers.
                    for app, name in (dict(early) or _APPLIED).items():
                        names = {"app_label": app, "migration_name": name}
                        super().handle(**{**options, **names})
            except BaseException:  # Ctrl-C too
                undo.take_back()
                raise
            for app, name in late:
                self.stdout.write(f"Left for migrate --after: {app}.{name}")
        else:
            with connection.execute_wrapper(_repeat_while_locked):
                super().handle(*args, **options)
        is_main = connection.alias == "default"
        if is_new and is_main and not cells.own().is_only and not options.get("app_label"):
            cell_record.write(cells.own())


def _repeat_while_locked(
    run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
) -> Any:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return run(sql, params, many, context)
        except DatabaseError as error:
            if transactions.error_code(error) != _LOCKED or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
