"""Marking as one would write it with the ORM: set the fields of the delivery, `save()` it.

Only what changed is written (`update_fields`), and deliveries are read 500 at a time, so that
reading them costs little: a task that had just delivered would have its row already. The results
are in memory, no queue is read, no counter kept; each save is a commit. With `--log` the attempt is
created too, and both are one transaction.
"""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

from bench.harness.programs import worker

PAGE = 500
FIELDS = ["status", "http_status", "send_times", "error", "claimed_by", "next_at", "updated_at"]


def main() -> None:
    parser = worker.options("Save deliveries one by one.")
    parser.add_argument("--log", action="store_true")
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from django.db import transaction

    from bench.notify import marker, notify_rows
    from notify.models import ReceiveMsg

    number = 0
    while not stop:
        queued = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED).order_by("id")
        page = list(queued[:PAGE])
        if not page:
            stop.wait()  # all is saved
            break
        ids = notify_rows.reserve(len(page))
        for row_id, copy in zip(ids, page, strict=True):
            refused = marker.refused(number)
            with transaction.atomic() if options.log else nullcontext():
                _save(copy, refused)
                if options.log:
                    _log(row_id, copy, marker.HEADERS[refused], marker.SENT_AT)
            number += 1
            options.progress.add(1)
            if stop:
                break


def _save(copy, refused):
    from django.utils import timezone

    now = timezone.now()
    if refused:
        copy.status, copy.http_status = copy.Status.PENDING, 503
        copy.next_at = now + timedelta(seconds=5)
    else:
        copy.status, copy.http_status = copy.Status.DELIVERED, 200
    copy.send_times += 1
    copy.error, copy.claimed_by, copy.updated_at = "", "", now
    copy.save(update_fields=FIELDS)


def _log(row_id, copy, headers, sent_at):
    from notify.models import Attempt

    Attempt.objects.create(
        id=row_id, copy=copy, claim="c" * 32, number=1, at=datetime.fromtimestamp(sent_at, UTC),
        seconds=0.0123, http_status=copy.http_status, response_headers=headers,
    )  # fmt: skip


if __name__ == "__main__":
    main()
