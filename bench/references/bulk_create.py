"""Intake of a batch with Django's own means: `bulk_create` of both tables in one transaction.

The same two rows a message. It validates nothing, hashes nothing, and would raise for a repeated
key. The ids are reserved before the clock runs.
"""

from bench.harness.programs import messages, worker


def main() -> None:
    parser = worker.options("Insert batches with bulk_create.")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--biz", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from django.db import transaction
    from django.utils import timezone

    from bench.notify import notify_rows
    from notify.models import BizMsg, IdempotencyKey

    biz, kind, number = options.biz, messages.EVENT_TYPE, 0
    while not stop:
        with options.progress.idle():
            keys = [messages.key(options.prefix, number + n) for n in range(options.batch)]
            events = [(key, messages.payload(key)) for key in keys]
            ids = notify_rows.reserve(options.batch)
        now = timezone.now()
        with transaction.atomic():
            IdempotencyKey.objects.bulk_create(
                IdempotencyKey(
                    id=i, bucket=i & 255, biz_id=biz, key=key, payload_hash="0" * 64, created_at=now
                )
                for i, (key, _) in zip(ids, events, strict=True)
            )
            BizMsg.objects.bulk_create(
                BizMsg(id=i, biz_id=biz, event_type=kind, payload=payload, created_at=now)
                for i, (_, payload) in zip(ids, events, strict=True)
            )
        number += options.batch
        options.progress.add(options.batch)


if __name__ == "__main__":
    main()
