"""The limit of intake: the rows of a batch by `executemany`, in one transaction.

The same two rows a message (message and idempotency key), with the same columns and indexes. It
validates nothing, hashes nothing, and would raise for a repeated key instead of answering it.
The ids are reserved and the rows made before the clock runs.
"""

from bench.harness.programs import messages, worker


def main() -> None:
    parser = worker.options("Insert batches with executemany.")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--biz", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from django.db import connection, transaction
    from django.utils import timezone

    from bench.notify import notify_rows
    from msgplatform.core.data import sql

    statements = [
        _statement(connection, "idempotency", notify_rows.KEY_COLUMNS),
        _statement(connection, "biz_msg", notify_rows.MESSAGE_COLUMNS),
    ]
    number = 0
    while not stop:
        with options.progress.idle():
            keys = [messages.key(options.prefix, number + n) for n in range(options.batch)]
            ids = notify_rows.reserve(options.batch)
            now = sql.stored(timezone.now())
            pairs = list(zip(ids, keys, strict=True))
            rows = [
                [(i, i & 255, options.biz, key, "0" * 64, now) for i, key in pairs],
                [notify_rows.message_row(i, options.biz, key, now) for i, key in pairs],
            ]
        with transaction.atomic(), connection.cursor() as cursor:
            for statement, batch in zip(statements, rows, strict=True):
                cursor.executemany(statement, batch)
        number += options.batch
        options.progress.add(options.batch)


def _statement(connection, table, columns):
    names = ", ".join(map(connection.ops.quote_name, columns))
    places = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO {table} ({names}) VALUES ({places})"


if __name__ == "__main__":
    main()
