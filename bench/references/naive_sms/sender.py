"""One Submit at a time: take an id, send, wait for the response."""

import sys
import time
from datetime import datetime

from bench.references.naive_sms import link, table
from gateway import sgip

NODE = sgip.sp_node_id("010", 12345)


def main() -> None:
    gateway, port = int(sys.argv[1]), int(sys.argv[2])
    client, connection = table.connect(), link.connect(port)
    stream = connection.makefile("rb")
    connection.sendall(sgip.Bind((NODE, 0, 0), 1, "sp", "secret").encode())
    if link.read(stream).result != 0:
        raise SystemExit("the login was refused")
    while True:
        message = table.take(client, table.pending(gateway), table.SENDING)
        send(client, connection, stream, message)
        client.lrem(table.SENDING, 1, message)


def send(client, connection, stream, message) -> None:
    mt = client.hgetall(table.mt(message))
    seqno, ts = client.incr(table.SEQNO), sgip.timestamp(datetime.now())  # noqa: DTZ005
    parts = sgip.split(mt["text"])
    submit = sgip.Submit(
        (NODE, ts, seqno), mt["sp_number"], mt["charge_number"], (mt["user_number"],),
        mt["corp_id"], mt["service_type"], priority=int(mt["priority"]),
        message_coding=parts.message_coding, message_content=parts.contents[0],
    )  # fmt: skip
    # Stored before the Submit is sent, because a Report may overtake the response.
    client.set(table.submit(seqno, ts), message)
    submitted_at = time.time()
    connection.sendall(submit.encode())
    response = link.read(stream)
    if response is None or response.sequence != submit.sequence:
        raise SystemExit(f"no response to {submit.sequence}: {response}")
    client.hset(
        table.mt(message),
        mapping={
            "submit": table.submit(seqno, ts), "coding": int(parts.message_coding),
            "result": response.result, "submitted_at": submitted_at, "responded_at": time.time(),
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
