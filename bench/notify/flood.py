"""Publishes batches over HTTP: `python -m bench.notify.flood --batch 1000 …`; else like `load`.

Standard library only, as it must cost little beside the server.
"""

import json

from bench.harness.programs import load
from bench.harness.programs.load import Connection
from bench.harness.programs.messages import request_body


class Batches(Connection):
    """One request is a batch."""

    path = "/api/v1/messages/batch"
    status = 200

    def body(self) -> bytes:
        keys = (self._key(self._prefix, self.accepted + n) for n in range(self.units))
        return b'{"messages":[%s]}' % b",".join(map(request_body, keys))

    def take(self, answer: bytes) -> None:
        if any(result["outcome"] != "created" for result in json.loads(answer)["results"]):
            raise RuntimeError(f"not created: {answer[:500]!r}")


def main() -> None:
    parser = load.options("Publish batches as fast as the server answers.")
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    connections = []
    for number in range(options.connections):
        connection = Batches(options.port, options.token, f"{options.prefix}-{number}")
        connection.units = options.batch
        connections.append(connection)
    load.run(options, connections)


if __name__ == "__main__":
    main()
