"""Takes work orders out of the queues as a sender would, and notes what was in them.

    python -m bench.harness.programs.drain --progress FILE --seen FILE QUEUE …

On SIGTERM it takes what is left and writes a record for each delivery to `--seen`: its id, message
id, subscription, digest of the payload.
"""

import struct
import time
from pathlib import Path

import msgspec

from bench.harness.programs import messages, worker

RECORD = struct.Struct("<qqi8s")


def main() -> None:
    parser = worker.options("Drain work orders.")
    parser.add_argument("--seen", type=Path, required=True)
    parser.add_argument("queues", nargs="+")
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from msgplatform.core.queues import jobs
    from notify.orders import Order

    seen = bytearray()
    while True:
        # Asked before the queues: what was put on them before SIGTERM is still taken.
        stopping = bool(stop)
        claimed = [job for name in options.queues if (job := jobs.claim(name, 60.0))]
        for order in (msgspec.convert(job.data, Order) for job in claimed):
            for item in order.items:
                digest = messages.digest(item.body.encode())
                seen += RECORD.pack(item.id, item.msg_id, order.subscription, digest)
            options.progress.add(len(order.items))
        jobs.remove_orders(claimed)
        if not claimed:
            if stopping:
                break
            time.sleep(0.002)
    options.seen.write_bytes(seen)


if __name__ == "__main__":
    main()
