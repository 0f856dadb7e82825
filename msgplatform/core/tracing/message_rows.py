"""The table `message_trace`: the traces of messages, for programs that handle a message later.

The table has a row for each traced message of Notify, SMS (when archived) and CRM sync, and no
other rows. Programs read it only while traces are on.
"""

from collections.abc import Iterable, Mapping

from django.db import connection

from msgplatform.core.data import chunks, sql
from msgplatform.core.tracing.context import Context, is_on, parse

TABLE = "message_trace"
_CHUNK = 500


def insert(contexts: Mapping[int, Context]) -> None:
    """Store the contexts of messages, in the messages' transaction. May be repeated."""
    if contexts:
        rows = [(message, context.text) for message, context in contexts.items()]
        sql.insert_or_keep(TABLE, ("id", "traceparent"), rows)


def read(ids: Iterable[int]) -> dict[int, Context]:
    """Message → context, for traced messages among these. Reads nothing while traces are off."""
    if not is_on():
        return {}
    contexts: dict[int, Context] = {}
    with connection.cursor() as cursor:
        for page in chunks(sorted(set(ids)), _CHUNK):
            numbers = ",".join(map(str, map(int, page)))
            cursor.execute(f"SELECT id, traceparent FROM {TABLE} WHERE id IN ({numbers})")  # noqa: S608
            for message, text in cursor.fetchall():
                if context := parse(text):
                    contexts[int(message)] = context
    return contexts


def traceparent(message: int) -> str:
    """The `traceparent` of one message, also while traces are off; '' if it was not traced."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT traceparent FROM {TABLE} WHERE id = %s", (message,))  # noqa: S608
        row = cursor.fetchone()
    return str(row[0]) if row else ""
