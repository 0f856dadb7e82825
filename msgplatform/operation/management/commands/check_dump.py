"""Tell whether a dump of this database is whole.

A server that alters a table does not list it for a moment: a dump that begins in that moment leaves
the table out and still ends with success.
"""

import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from msgplatform.core.data import schema_state

_TABLE = re.compile(rb"CREATE TABLE `([^`]+)` \(")
_END = b"-- Dump completed"  # the first words of the last line, from MySQL and MariaDB alike


class Command(BaseCommand):
    help = (
        "Tell whether a file that mariadb-dump or mysqldump has written has its last line, and "
        "every table that the migrations of this database made. Exit code 1: dump once more."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="the dump; - reads standard input")
        parser.add_argument("--database", default="default", choices=list(connections))

    def handle(self, *args: Any, **options: Any) -> None:
        table_names, has_end, name = set(), False, options["file"]
        try:
            with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as lines:
                for line in lines:
                    if table := _TABLE.match(line):
                        table_names.add(table[1].decode())
                    has_end = line.startswith(_END)
        except OSError as error:
            raise CommandError(f"The dump cannot be read: {error}.") from error
        if not has_end:
            raise CommandError(
                f"The dump has {len(table_names)} tables and was cut short: its last line does not "
                f"begin with “{_END.decode()}”. Dump the database once more."
            )
        migrated_names = schema_state.tables_of_migrations(connections[options["database"]])
        if missing := sorted(migrated_names - table_names):
            raise CommandError(
                f"The dump lacks tables ({schema_state.enumerate_tables(missing)}): the server was "
                "altering them when it began. Dump the database once more."
            )
        self.stdout.write(f"The dump is whole: {len(table_names)} tables.")
