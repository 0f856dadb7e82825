"""The load generator of Kannel: one message an HTTP request, over keep-alive connections.

    python -m bench.references.kannel.sms_load --port 13013 --hook http://127.0.0.1:9000/hook …

On SIGTERM it waits for requests in flight and writes the number of each accepted message to
`--accepted`. The business system hears of a message by a GET of `--hook` with its number.
"""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlencode

from bench.gateway import sms_messages
from bench.harness.programs import load
from bench.references.kannel.configuration import PASSWORD, USER

_DELIVERED = 1  # of dlr-mask


class SendSms(load.Connection):
    """Each request has the next number, which all connections share."""

    status = 202

    def __init__(self, port: int, hook: str, sender: str, numbers: Iterator[int]) -> None:
        super().__init__(port, "", "")
        self.numbers: list[int] = []
        self._numbers, self._hook = numbers, hook
        fixed = {
            "username": USER, "password": PASSWORD, "from": sender, "coding": 2,
            "charset": "UTF-8", "dlr-mask": _DELIVERED,
        }  # fmt: skip
        self._start = f"GET /cgi-bin/sendsms?{urlencode(fixed)}"
        self._end = f" HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"

    def send(self) -> None:
        self._number = next(self._numbers)
        text = quote(sms_messages.text(self._number))
        hook = quote(f"{self._hook}?number={self._number}&state=%d", safe="")
        to = sms_messages.recipient(self._number)
        request = f"{self._start}&to={to}&text={text}&dlr-url={hook}{self._end}"
        self.is_idle = False
        self.sent_at = time.perf_counter()
        self.socket.sendall(request.encode())

    def take(self, answer: bytes) -> None:
        self.numbers.append(self._number)


def main() -> None:
    parser = load.options("Send short messages as fast as the server answers.")
    parser.add_argument("--hook", required=True)
    parser.add_argument("--sender", required=True)
    parser.add_argument("--accepted", type=Path, required=True)
    options = parser.parse_args()
    numbers = count()
    connections = [
        SendSms(options.port, options.hook, options.sender, numbers)
        for _ in range(options.connections)
    ]
    load.run(options, connections)
    lines = [f"{number}\n" for connection in connections for number in connection.numbers]
    options.accepted.write_text("".join(lines))


if __name__ == "__main__":
    main()
