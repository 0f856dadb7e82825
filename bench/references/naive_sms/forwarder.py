"""One event at a time: POST it, wait for the answer, hand the message on.

With `--rows` the event and what became of it are rows of Notify's tables.
"""

import json
import sys
import time
from datetime import UTC, datetime

from bench.harness.programs import worker
from bench.references import rq_jobs
from bench.references.naive_sms import event_rows, table


def main() -> None:
    url, client = sys.argv[1], table.connect()
    subscription = the_subscription() if "--rows" in sys.argv else None
    while True:
        message = table.take(client, table.LIST_REPORT, table.FORWARDING)
        text = body(message, client.hgetall(table.mt(message)))
        if subscription:
            copy, began = event_rows.write(subscription, message, text), time.time()
        rq_jobs.deliver(url, message, text)
        if subscription:
            event_rows.mark(copy, began)
        client.rpush(table.LIST_FINISH, message)
        client.lrem(table.FORWARDING, 1, message)


def the_subscription():
    worker.set_up_django()
    from notify.models import BizReceive

    return BizReceive.objects.get()


def body(message, mt) -> str:
    data = {
        "id": message, "reference": mt["reference"], "to": mt["user_number"],
        "account": mt["account"], "state": mt["final"], "error_code": int(mt["error"]),
        "error": "", "parts": 1, "accepted_at": iso(mt["accepted_at"]),
        "submitted_at": iso(mt.get("submitted_at")), "reported_at": iso(mt["reported_at"]),
    }  # fmt: skip
    return json.dumps({"type": "sms.report", "timestamp": mt["reported_at"], "data": data})


def iso(moment) -> str | None:
    if moment is None:  # the Report came before the sender had stored the response
        return None
    return datetime.fromtimestamp(float(moment), UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    main()
