"""Restore a backup into empty databases, with no program running.

After an error empty the databases again and repeat all steps.
"""

import json
import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from msgplatform.core import connections as redis_connections, flows
from msgplatform.core.daemons import heartbeats
from msgplatform.core.data import engines, migration_stages
from msgplatform.core.secrets import key_files
from msgplatform.operation.backup import backup
from msgplatform.operation.backup.backup import BackupRefused


def restore(folder: Path, say: backup.Say) -> None:
    """Load a backup, migrate it, and repair changes after the backup. `say` gets a sentence for
    people after each step. Raises BackupRefused before anything is changed, and errors of servers
    and commands."""
    manifest = read(folder)
    erasures = Path(settings.STATE_DIR) / backup.ERASURES
    with backup.embedded_servers():
        _check(manifest)
        has_list = (folder / backup.ERASURES).exists()
        if has_list and not erasures.exists():
            # Before the load, which may take hours: after an error it has to be repeated.
            erasures.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(erasures.parent, os.W_OK):
                raise BackupRefused(f"This user may not write the list of erasures: {erasures}")
        for alias, description in manifest["databases"].items():
            _load(connections[alias], folder / description["file"])
            missing_tables = set(description["tables"]) - set(
                connections[alias].introspection.table_names()
            )
            if missing_tables:
                raise BackupRefused(f"The load of {alias} lacks {min(missing_tables)}.")
            say(f"Database {alias}: {len(description['tables'])} tables loaded")
        for alias in manifest["databases"]:
            call_command("migrate", database=alias, interactive=False, verbosity=0)
            say(f"Database {alias}: migrated")
        # A backup of an earlier release has sessions, some of which were ended after it.
        with connections["default"].cursor() as cursor:
            for name in sorted(backup.SESSION_TABLES):
                cursor.execute(f"DELETE FROM {name}")  # noqa: S608 - a name of ours
        say("All sessions: ended")
        for recovery in (recovery for flow in flows.all() for recovery in flow.recoveries):
            words = [word.format(began_at=manifest["began_at"]) for word in recovery.arguments]
            say(f"{recovery.command} {' '.join(words)}".strip())
            call_command(recovery.command, *words)
        # Last: a restore that is repeated reads there once more what is newer than the backup.
        redis_connections.work_redis().flushdb()
        say("The work Redis: emptied, since its data belongs to the state before")
    if has_list and not erasures.exists():
        shutil.copy(folder / backup.ERASURES, erasures)
        say(f"{erasures}: from the backup. If a machine has a newer one, put it there instead.")


def read(folder: Path) -> backup.Manifest:
    """The manifest of a backup. Raises BackupRefused if a file is missing or damaged."""
    try:
        text = (folder / backup.MANIFEST).read_text(encoding="utf-8")
        manifest: backup.Manifest = json.loads(text)
        files = manifest["files"]
    except (OSError, ValueError, KeyError) as error:
        raise BackupRefused(f"{folder} is no whole backup: {backup.MANIFEST}: {error}") from None
    digests = backup.digests(folder)
    if damaged_names := sorted(name for name in files if digests.get(name) != files[name]):
        raise BackupRefused(
            f"{folder / damaged_names[0]} is missing, or is not what was backed up."
        )
    return manifest


def _check(manifest: backup.Manifest) -> None:
    """Raises BackupRefused if the backup does not fit the settings, or would overwrite data."""
    if programs := sorted({beat.program for beat in heartbeats.alive()}):
        raise BackupRefused(
            f"Stop every program first: {programs[0]} runs, or was killed within the last "
            f"{heartbeats.TTL_SECONDS} s."
        )
    databases = manifest["databases"]
    if databases.keys() != set(connections):
        raise BackupRefused(
            f"The backup has the databases {', '.join(databases)}; configured are "
            f"{', '.join(connections)}: set COLD_DATABASE_URL as it was."
        )
    fingerprints = set(map(key_files.fingerprint, settings.ENCRYPTION_KEYS))
    if not set(manifest["encryption_keys"]) <= fingerprints:
        raise BackupRefused(
            "ENCRYPTION_KEY is not the one of this backup: its secrets could not be read. Set the "
            "one of that time; several are separated by commas."
        )
    for alias, description in databases.items():
        connection = connections[alias]
        engine = engines.of_connection(connection)
        if description["is_file"] is engine.is_server:
            kind = "a file of SQLite" if description["is_file"] else "a dump of MariaDB or MySQL"
            raise BackupRefused(f"The backup is {kind}; the database {alias} is one of {engine}.")
        if connection.introspection.table_names():
            raise BackupRefused(
                f"The database {alias} is not empty, and nothing is overwritten: drop it and make "
                "it anew (DROP DATABASE …; of SQLite move the file away, with -wal and -shm)."
            )
        loader = MigrationLoader(connection)
        known_migrations = {".".join(name) for name in loader.disk_migrations or ()}
        if newer_migrations := sorted(set(description["migrations"]) - known_migrations):
            raise BackupRefused(
                f"The backup is of a newer release ({manifest['version']}), or of other FLOWS: "
                f"the migration {newer_migrations[0]} is unknown here."
            )
        if errors := migration_stages.database_errors(alias):
            raise BackupRefused(errors)


def _load(connection: Any, path: Path) -> None:
    engine = engines.of_connection(connection)
    if not engine.is_server:
        connection.ensure_connection()
        connect, address = connection.Database.connect, f"file:{path}?immutable=1"
        with connection.wrap_database_errors, closing(connect(address, uri=True)) as copy:
            copy.backup(connection.connection)
        connection.close()
        return
    command, environment = backup.client_command(connection, engine.load_programs)
    with path.open("rb") as file:
        code, reason = backup.run_tool(
            # The tool's reading moves the position of this file.
            command, environment, lambda: os.lseek(file.fileno(), 0, os.SEEK_CUR),
            stdin=file, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    if code:
        raise BackupRefused(f"The load of {connection.alias} was cut short: {reason[-300:]}")
