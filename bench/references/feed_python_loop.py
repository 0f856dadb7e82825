"""Fan-out as one would write it in Python: for each event, read the friends, write their entries.

The posts of a batch are read by one statement, the entries of an event are written by one
`executemany`, and a batch is one transaction.
"""

from bench.harness.programs import worker

EVENTS = (
    "SELECT e.qid, f.biz_id, f.uid, f.create_date, f.app_id, f.src_type FROM eventqueue e "
    "JOIN feed f ON f.id = e.qid WHERE e.topic = 'friend' AND e.status = 0 ORDER BY e.qid LIMIT %s"
)
FRIENDS = "SELECT fri_uid FROM friend WHERE biz_id = %s AND uid = %s AND relation = 'friend'"
INSERT = (
    "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type) "
    "VALUES (%s, %s, %s, %s, %s, %s)"
)
UPDATE = "UPDATE eventqueue SET status = 1, handle_date = UTC_TIMESTAMP(6) WHERE qid = %s"


def main() -> None:
    parser = worker.options("Fan out in Python.")
    for name in ("batch", "first", "step", "count"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from django.db import connection, transaction

    while not stop:
        written = 0
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(EVENTS, [options.batch])
            events = cursor.fetchall()
            for feed_id, biz, uid, *values in events:
                cursor.execute(FRIENDS, [biz, uid])
                rows = [(biz, friend, feed_id, *values) for (friend,) in cursor.fetchall()]
                cursor.executemany(INSERT, rows)
                written += len(rows)
            cursor.executemany(UPDATE, [(feed_id,) for feed_id, *_ in events])
        options.progress.add(written)
        if not events:
            stop.wait()


if __name__ == "__main__":
    main()
