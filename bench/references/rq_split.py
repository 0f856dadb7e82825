"""The split as one would write it with the ORM and RQ: a job for each delivery of each message.

Messages are read 500 at a time, the subscriptions once a page; the page's messages are marked as
split with one UPDATE. `--many` hands each page to RQ's `enqueue_many`, one round trip for all its
jobs; without it every job is an `enqueue()`. It keeps no row for a delivery, so unlike ours it
could neither say what became of one nor queue it again after Redis was emptied.
"""

from bench.harness.programs import worker
from bench.references import rq_jobs

PAGE = 500


def main() -> None:
    parser = worker.options("Split messages into RQ jobs.")
    parser.add_argument("--many", action="store_true")
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from rq import Queue

    from notify.models import BizMsg, BizReceive

    queue = rq_jobs.queue()
    while not stop:
        waiting = BizMsg.objects.filter(state=BizMsg.State.ACCEPTED).order_by("id")
        page = list(waiting.select_related("biz")[:PAGE])
        if not page:
            break
        subscriptions = list(
            BizReceive.objects.filter(biz__in={m.biz_id for m in page}).select_related("receive")
        )
        jobs = [
            (subscription.receive.url, str(message.id), body(message))
            for message in page
            for subscription in subscriptions
            if subscription.biz_id == message.biz_id
        ]
        if options.many:
            queue.enqueue_many([Queue.prepare_data(rq_jobs.deliver, job) for job in jobs])
            options.progress.add(len(jobs))
        else:
            for job in jobs:
                queue.enqueue(rq_jobs.deliver, *job)
                options.progress.add(1)
        BizMsg.objects.filter(id__in=[m.id for m in page]).update(state=BizMsg.State.DISTRIBUTED)
    stop.wait()


def body(message) -> str:
    timestamp = message.created_at.isoformat().replace("+00:00", "Z")
    head = f'{{"type":"{message.event_type}","timestamp":"{timestamp}","data":'
    return head + bytes(message.payload).decode() + "}"


if __name__ == "__main__":
    main()
