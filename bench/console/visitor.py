"""A person who opens every page, one after another, again and again.

    python -m bench.console.visitor --port 8000 --progress FILE --visit FILE --unmeasured 1

The file is JSON: the `cookie` of a session, and the `pages` as [name, address, token]. On SIGTERM
it prints how many milliseconds each page took, each time but the unmeasured first ones, which fill
caches. An answer other than 200 ends it with an error. Standard library only, because it must cost
little beside the server.
"""

import http.client
import json
import time
from collections import defaultdict
from pathlib import Path

from bench.harness.programs import quantiles, worker

_CONNECT_SECONDS = 60.0


def main() -> None:
    parser = worker.options("Open every page, again and again.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--visit", type=Path, required=True)
    parser.add_argument("--unmeasured", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    visit = json.loads(options.visit.read_text())
    connection = _connected(options.port)
    times: dict[str, list[float]] = defaultdict(list)
    round_number = 0
    while not stop:
        round_number += 1
        for name, address, token in visit["pages"]:
            if stop:
                break
            took = _open(connection, address, token, visit["cookie"])
            if round_number > options.unmeasured:
                times[name].append(round(took * 1000, 2))
            options.progress.add(1)
    seconds = [each / 1000 for some in times.values() for each in some]
    print(json.dumps({**quantiles.report(seconds), "pages": times}))


def _connected(port: int) -> http.client.HTTPConnection:
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.connect()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return connection


def _open(connection: http.client.HTTPConnection, address: str, token: str, cookie: str) -> float:
    """Seconds, with the page that an only hit leads to. Raises RuntimeError for an answer that is
    no page."""
    headers = {"Authorization": f"Bearer {token}"} if token else {"Cookie": cookie}
    begun = time.perf_counter()
    connection.request("GET", address, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - begun
    place = answer.getheader("Location", "")
    if answer.status == 302 and place.startswith("/console/"):
        return took + _open(connection, place, token, cookie)
    if answer.status != 200:
        answer_text = f"{place} {body[:300]!r}"
        raise RuntimeError(f"{answer.status} {address} {answer_text}")
    return took


if __name__ == "__main__":
    main()
