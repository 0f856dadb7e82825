"""A business system as a process: it sends over REST, and writes down what was accepted.

    python -m tests.flows.sms_client --url http://… --token mp_… --system clinic
        --least 5000 --share 100 --file clinic.client

Every line on standard input is leave to send another share; at its end it sends what is missing
to the least. It writes `asked <n>` before a request, `again <why>` when nothing is known of its
outcome, so that it is repeated with the same keys, `accepted <id> <number>` for what was answered
with 2xx, and `share` after each share.
"""

import argparse
import http.client
import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from tests.flows.sms_traffic import Call, calls

_CALLS_A_REQUEST = 3
_PAUSE = 0.1  # seconds until it asks again
_PATIENCE = 600.0  # seconds


class Client:
    def __init__(self, options: argparse.Namespace, file: TextIO) -> None:
        self._file, self._share, self._missing = file, options.share, options.least
        self._calls = calls(options.system)
        self._connection = http.client.HTTPConnection(urlsplit(options.url).netloc, timeout=15)
        self._headers = {
            "Authorization": f"Bearer {options.token}", "Content-Type": "application/json",
        }  # fmt: skip

    def run(self) -> None:
        for _leave in sys.stdin:
            self._send(self._share)
            self._write("share")
        self._send(self._missing)

    def _send(self, share: int) -> None:
        while share > 0:
            some = list(islice(self._calls, _CALLS_A_REQUEST))
            count = sum(len(call.numbers) for call in some)
            self._write(f"asked {count}")
            for call, verdict in zip(some, self._until_answered(some), strict=True):
                if verdict["outcome"] not in ("created", "duplicate"):
                    raise SystemExit(f"{call} was refused: {verdict}")
                for id, number in zip(verdict["ids"], call.numbers, strict=True):
                    self._write(f"accepted {id} {number}")
            share -= count
            self._missing -= count

    def _until_answered(self, some: Sequence[Call]) -> list[dict[str, Any]]:
        items = [
            {
                "to": call.numbers, "text": call.text, "priority": call.priority,
                "idempotency_key": call.key, "reference": call.key,
            }
            for call in some
        ]  # fmt: skip
        body = json.dumps({"messages": items})
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            status, answer = self._once(body)
            if status == 200:
                results: list[dict[str, Any]] = json.loads(answer)["results"]
                return results
            if status not in (0, 429, 503):
                raise SystemExit(f"HTTP {status}: {answer[:300]!r}")
            self._write(f"again {status}")
            time.sleep(_PAUSE)
        raise SystemExit("no answer for too long")

    def _once(self, body: str) -> tuple[int, bytes]:
        """(0, …) when the connection broke: it may or may not have been accepted."""
        try:
            self._connection.request("POST", "/api/v1/sms/batch", body, self._headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return 0, str(error).encode()

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends, and writes down what was accepted.")
    for name in ("url", "token", "system", "file"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("least", "share"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    with Path(options.file).open("a", encoding="ascii") as file:
        Client(options, file).run()


if __name__ == "__main__":
    main()
