"""The load generator of short messages: batches over keep-alive connections.

    python -m bench.gateway.sms_load --port 8000 --token mp_… --prefix a --batch 100 …

On SIGTERM it waits for requests in flight and writes a line for each accepted message to
`--accepted`: its id and its number. A message that was not created ends it with an error.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from bench.gateway.sms_messages import item
from bench.harness.programs import load


class BatchConnection(load.Connection):
    """Each request is a batch with the next numbers, which all connections share."""

    path = "/api/v1/sms/batch"
    status = 200

    def __init__(
        self, port: int, token: str, prefix: str, batch: int, numbers: Iterator[int]
    ) -> None:
        super().__init__(port, token, prefix)
        self.units = batch
        self.ids: list[tuple[str, int]] = []
        self._numbers = numbers
        self._sent: list[int] = []

    def body(self) -> bytes:
        self._sent = [next(self._numbers) for _ in range(self.units)]
        items = ",".join([item(self._prefix, number) for number in self._sent])
        return f'{{"messages":[{items}]}}'.encode()

    def take(self, answer: bytes) -> None:
        for verdict, number in zip(json.loads(answer)["results"], self._sent, strict=True):
            if verdict["outcome"] != "created":
                raise RuntimeError(f"not accepted: {verdict}")
            self.ids.append((verdict["ids"][0], number))


def main() -> None:
    parser = load.options("Send batches of short messages as fast as the server answers.")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--accepted", type=Path, required=True)
    given = parser.parse_args()
    numbers = count()
    connections = [
        BatchConnection(given.port, given.token, given.prefix, given.batch, numbers)
        for _ in range(given.connections)
    ]
    load.run(given, connections)
    lines = [f"{id} {number}\n" for connection in connections for id, number in connection.ids]
    given.accepted.write_text("".join(lines))


if __name__ == "__main__":
    main()
