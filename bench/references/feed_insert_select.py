"""The limit of fan-out: a batch of posts joined with their authors' friends, written by the server.

The events are known beforehand: their ids are `--step` apart. No event is locked, no author is
looked up, no existing entry is kept, nothing is counted.
"""

from bench.harness.programs import worker

INSERT = (
    "INSERT INTO feed_broadcast (biz_id, fri_uid, feed_id, create_date, app_id, src_type) "
    "SELECT r.biz_id, r.fri_uid, f.id, f.create_date, f.app_id, f.src_type "
    "FROM feed f STRAIGHT_JOIN friend r ON r.biz_id = f.biz_id AND r.uid = f.uid "
    "AND r.relation = 'friend' WHERE f.id BETWEEN %s AND %s"
)
UPDATE = (
    "UPDATE eventqueue SET status = 1, handle_date = UTC_TIMESTAMP(6) WHERE qid BETWEEN %s AND %s"
)


def main() -> None:
    parser = worker.options("Fan out by INSERT … SELECT.")
    for name in ("batch", "first", "step", "count"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from django.db import connection, transaction

    for start in range(0, options.count, options.batch):
        end = min(start + options.batch, options.count) - 1
        bounds = [options.first + number * options.step for number in (start, end)]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(INSERT, bounds)
            written = cursor.rowcount
            cursor.execute(UPDATE, bounds)
        options.progress.add(written)
        if stop:
            return
    stop.wait()


if __name__ == "__main__":
    main()
