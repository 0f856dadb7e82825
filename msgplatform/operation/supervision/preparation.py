"""Prepares tables, static files, and a user who can log in to the console, before the platform's
programs start.

A forked child prepares tables and files, and frees its memory: `up` would otherwise keep the 35 MB
that migrations load for as long as the platform runs.
"""

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import IntegrityError, connections
from django.db.utils import Error as DatabaseError

from msgplatform.core import invitations
from msgplatform.core.data import cell_record, engines, migration_stages
from msgplatform.doors.web import static_files
from msgplatform.operation.supervision.run import Refused


def run(migrate: bool, say: Callable[[str], None]) -> None:
    """Apply missing migrations: always to SQLite, to a database server only with `migrate`; then
    collect static files. `say` gets a sentence for people before a long step. Call it before
    the first thread. Raises Refused, and whatever else the child has raised."""
    connections.close_all()  # a child that closes its parent's connection ends it
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_run, args=(migrate, say, sender))
    child.start()
    sender.close()
    try:
        error: BaseException | None = receiver.recv()
    except EOFError:
        error = Refused("The databases were not prepared; see the lines before.")
    finally:
        child.join()
    if error:
        raise error


def _run(migrate: bool, say: Callable[[str], None], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too
    try:
        _prepare_databases(migrate, say)
        static_files.collect()
    except Exception as error:  # noqa: BLE001 - the parent raises it
        sender.send(error)
    else:
        sender.send(None)


def _prepare_databases(migrate: bool, say: Callable[[str], None]) -> None:
    for alias in connections:
        connection = connections[alias]
        try:
            if missing_tables := migration_stages.missing_tables(connection):
                raise Refused(missing_tables)
            open_count = migration_stages.count_open(connection)
            if not open_count:
                continue
            # Other machines with older programs may use the database of a server.
            if not migrate and engines.of(alias).is_server:
                raise Refused(
                    f"The database {alias} lacks {open_count} migrations. Apply them with: "
                    f"{migration_stages.migrate_command(alias)} (or start with --migrate)"
                )
            if not connection.introspection.table_names():
                say(f"Making the tables ({alias}): a first start takes up to two minutes.")
            # `migrate` would stop in its middle. Warnings do not count, because the embedded Redis
            # does not run yet.
            if errors := migration_stages.database_errors(alias):
                raise Refused(errors)
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


FIRST_USER = "admin"


def first_login_link() -> str:
    """The path of the page where the first user chooses a password; '' if no page is needed, or
    without local passwords (`manage.py login_link` lets the user in).

    The superuser `admin` is created, without a password, if there is no user at all. Every call
    makes a link while the only superuser has no password and has never logged in. All links end
    when a password is chosen, and each after PASSWORD_RESET_TIMEOUT. Raises DatabaseError.
    """
    users = get_user_model().objects
    try:
        if not users.exists():
            with suppress(IntegrityError):  # another machine created the user
                users.create_superuser(FIRST_USER)
        superusers = list(users.filter(is_superuser=True, is_active=True)[:2])
        # A second superuser can set the password in the console, so that no link is needed.
        user = superusers[0] if len(superusers) == 1 else None
        if user is None or user.last_login or user.has_usable_password():
            return ""
        if not settings.LOCAL_PASSWORDS:
            return ""
        return invitations.link_path(user)
    finally:
        connections["default"].close()
