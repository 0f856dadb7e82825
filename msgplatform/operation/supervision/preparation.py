"""What must be there before the platform's programs start: tables, and the files of pages.

It is prepared in a forked child, whose memory is free afterwards: `up` would hold what migrations
load, some 35 MB, for as long as the platform runs.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

from django.core import checks
from django.core.management import call_command
from django.db import connections
from django.db.utils import Error as DatabaseError

from msgplatform.core.data import cell_record, schema_state
from msgplatform.doors.web import static_files
from msgplatform.operation.supervision.run import Refused


def run(migrate: bool, say: Callable[[str], None]) -> None:
    """Apply missing migrations: always to SQLite, to a database server only with `migrate`; then
    collect static files. `say` gets a sentence for people before what takes long. Call it before
    the first thread. Raises Refused, and whatever else the child has raised."""
    connections.close_all()  # a child that closed a connection of its parent's would end it
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_run, args=(migrate, say, sending))
    child.start()
    sending.close()
    try:
        error: BaseException | None = receiving.recv()
    except EOFError:
        error = Refused("The databases were not prepared; see the lines before.")
    finally:
        child.join()
    if error:
        raise error


def _run(migrate: bool, say: Callable[[str], None], sending: Connection) -> None:
    try:
        _prepare_databases(migrate, say)
        static_files.collect()
    except Exception as error:  # noqa: BLE001 - the parent raises it
        sending.send(error)
    else:
        sending.send(None)


def _prepare_databases(migrate: bool, say: Callable[[str], None]) -> None:
    """Apply missing migrations: always to SQLite, to a database server only with `migrate`. `say`
    gets a sentence for people before what takes long."""
    for alias in connections:
        connection = connections[alias]
        try:
            if tables := schema_state.missing_tables(connection):
                raise Refused(tables)
            missing = schema_state.open_migrations(connection)
            if not missing:
                continue
            # A server's database may be used by other machines, with older programs.
            if not migrate and connection.vendor != "sqlite":
                raise Refused(
                    f"The database {alias} lacks {missing} migrations. Apply them with: "
                    f"{schema_state.migrate_command(alias)} (or start with --migrate)"
                )
            if not connection.introspection.table_names():
                say(f"Making the tables ({alias}): a first start takes up to two minutes.")
            # The checks of `migrate` run before it, since it would stop in its middle otherwise.
            # Warnings are left out: the embedded Redis does not run yet.
            messages = checks.run_checks(tags=[checks.Tags.database], databases=[alias])
            serious = [text for text in messages if text.is_serious() and not text.is_silenced()]
            if serious:
                raise Refused("\n".join(map(str, serious)))
            call_command("migrate", database=alias, interactive=False, verbosity=0)
        except DatabaseError as error:
            raise Refused(f"The database {alias} cannot be used: {error}") from None
        finally:
            connection.close()
    try:
        cell_record.check()
    except cell_record.WrongCell as error:
        raise Refused(str(error)) from None
    finally:
        connections["default"].close()
