"""Marking as one would write it with the ORM: set the fields of the copy, `save()` it.

Only what changed is written (`update_fields`), and the copies are read 500 at a time, so that
reading them costs little: a task that had just delivered would hold its copy already. The results
are in memory, no queue is read, no counter kept; each save is a commit.
"""

from datetime import timedelta

from bench import worker

PAGE = 500
FIELDS = ["status", "http_status", "send_times", "error", "claimed_by", "next_at", "updated_at"]


def main() -> None:
    options = worker.options("Save copies one by one.").parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from django.utils import timezone

    from bench.marker import refused
    from notify.models import ReceiveMsg

    number = 0
    while not stop:
        queued = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED).order_by("id")
        page = list(queued[:PAGE])
        if not page:
            stop.wait()
        for copy in page:
            now = timezone.now()
            if refused(number):
                copy.status, copy.http_status = ReceiveMsg.Status.PENDING, 503
                copy.next_at = now + timedelta(seconds=5)
            else:
                copy.status, copy.http_status = ReceiveMsg.Status.DELIVERED, 200
            copy.send_times += 1
            copy.error, copy.claimed_by, copy.updated_at = "", "", now
            copy.save(update_fields=FIELDS)
            number += 1
            options.progress.add(1)
            if stop:
                break


if __name__ == "__main__":
    main()
