"""One event at a time: POST it, wait for the answer, hand the message on."""

import json
import sys
from datetime import UTC, datetime

from bench.references import rq_jobs
from bench.references.naive_sms import table


def main() -> None:
    url, client = sys.argv[1], table.connect()
    while True:
        message = table.take(client, table.LIST_REPORT, table.FORWARDING)
        mt = client.hgetall(table.mt(message))
        rq_jobs.deliver(url, message, body(message, mt))
        client.rpush(table.LIST_FINISH, message)
        client.lrem(table.FORWARDING, 1, message)


def body(message, mt) -> str:
    data = {
        "id": message, "reference": mt["reference"], "to": mt["user_number"],
        "account": mt["account"], "state": mt["final"], "error_code": int(mt["error"]),
        "error": "", "parts": 1, "accepted_at": iso(mt["accepted_at"]),
        "submitted_at": iso(mt.get("submitted_at")), "reported_at": iso(mt["reported_at"]),
    }  # fmt: skip
    return json.dumps({"type": "sms.report", "timestamp": mt["reported_at"], "data": data})


def iso(moment) -> str | None:
    if moment is None:  # the Report came before the response was written down
        return None
    return datetime.fromtimestamp(float(moment), UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    main()
