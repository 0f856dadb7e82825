"""One Report at a time: write it down, hand the message on, answer."""

import socket
import sys
import time

from bench.references.naive_sms import link, table
from gateway import sgip


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    client = table.connect()
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serve(client, connection)
        connection.close()


def serve(client, connection) -> None:
    stream = connection.makefile("rb")
    while (command := link.read(stream)) is not None:
        if isinstance(command, sgip.Bind):
            good = command.login_password == "secret"
            answer = sgip.BindResp(command.sequence, 0 if good else 1)
        elif isinstance(command, sgip.Report):
            take(client, command)
            answer = sgip.ReportResp(command.sequence)
        else:
            return
        connection.sendall(answer.encode())


def take(client, report) -> None:
    _, ts, seqno = report.submit_sequence
    message = client.get(table.submit(seqno, ts))
    if message is None:
        return
    client.hset(
        table.mt(message),
        mapping={
            "final": "delivered" if report.state == 0 else "failed",
            "error": report.error_code, "state": "reported", "reported_at": time.time(),
        },
    )  # fmt: skip
    client.rpush(table.LIST_REPORT, message)


if __name__ == "__main__":
    main()
