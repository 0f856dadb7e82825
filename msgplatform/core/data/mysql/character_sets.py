"""The character sets of the platform's own tables: utf8mb4, whatever the server's default is.

In `utf8` (utf8mb3), latin1 or gbk one emoji in a consumer's answer is refused (1366).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

_COLUMNS = """
SELECT table_name, column_name, column_type, is_nullable, column_default
FROM information_schema.columns
WHERE table_schema = DATABASE() AND character_set_name IS NOT NULL
  AND character_set_name <> 'utf8mb4'
ORDER BY table_name, ordinal_position
"""


class Problem(NamedTuple):
    text: str
    repair: str  # an SQL statement


def problems(connection: Any) -> Iterator[Problem]:
    """The database, if new tables get another character set, and each table that has one. Tables of
    other programs in the same database are left out."""
    own_tables = set(connection.introspection.django_table_names())
    with connection.cursor() as cursor:
        cursor.execute("SELECT DATABASE(), @@character_set_database")
        name, character_set = cursor.fetchone()
        if character_set != "utf8mb4":
            yield Problem(
                f"new tables of the database {name} get the character set {character_set}, which "
                "cannot hold every character",
                f"ALTER DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;",
            )
        cursor.execute(_COLUMNS)
        columns = [column for column in cursor.fetchall() if column[0] in own_tables]
    changes: dict[str, list[str]] = defaultdict(list)
    for table, column, column_type, is_nullable, default in columns:
        null = "NULL" if is_nullable == "YES" else "NOT NULL"
        # MariaDB gives the default of a text as an expression, or as NULL.
        value = "" if default in (None, "NULL") else f" DEFAULT {default}"
        changes[table].append(
            f"MODIFY `{column}` {column_type} CHARACTER SET utf8mb4 {null}{value}"
        )
    for table, parts in changes.items():
        yield Problem(
            f"{len(parts)} columns of the table {table} cannot hold every character",
            f"ALTER TABLE `{table}` {', '.join(parts)};",
        )
