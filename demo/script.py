"""A business system's program: requests with keys, some of them repeated as after a lost answer."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import urlsplit

from demo.connection import Answer, Connection

THREADS = 8
BATCH = 100
T = TypeVar("T")


class Script:
    """The calls of one system over one connection, for one thread.

    Each request can be repeated, so a lost answer does no harm. Every method raises RuntimeError
    for an answer that it does not expect.
    """

    def __init__(self, connection: Connection, token: str = "", **headers: str) -> None:
        """`headers` are further ones of each request; without a token there is no API key."""
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers |= headers

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        return self._connection.json(method, path, body, {**self._headers, **headers})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of a request that must be done at once."""
        answer = self.request(method, path, body).require(200, 204)
        return answer.json() if answer.status == 200 else None

    def send(
        self, path: str, body: Any, key: str = "", is_repeated: bool = False
    ) -> Mapping[str, Any]:
        """Send a message under an idempotency key, in `body` or as `key`; the answer. With
        `is_repeated` it is sent twice, and must get the same id."""
        headers = {"Idempotency-Key": key} if key else {}
        answers = [
            self.request("POST", path, body, headers).require(200, 202).json()
            for _ in range(2 if is_repeated else 1)
        ]
        _require_same([[_id(answer)] for answer in answers])
        first: Mapping[str, Any] = answers[0]
        return first

    def send_many(
        self, path: str, name: str, items: Sequence[Any], is_repeated: bool = False
    ) -> list[Mapping[str, Any]]:
        """Send a batch as the field `name`; a verdict for each item, none of which is rejected."""
        answers = [
            self.request("POST", path, {name: list(items)}).require(200).json()["results"]
            for _ in range(2 if is_repeated else 1)
        ]
        # A duplicate is as good: the connection broke after the first request was accepted.
        rejections = [verdict for verdict in answers[0] if verdict["outcome"] == "rejected"]
        if rejections or len(answers[0]) != len(items):
            raise RuntimeError(f"{len(rejections)} of {len(items)} were rejected: {rejections[:3]}")
        _require_same([[_id(verdict) for verdict in verdicts] for verdicts in answers])
        return list(answers[0])

    def pages(self, path: str) -> Iterator[list[Mapping[str, Any]]]:
        """The pages of a list, from this address on."""
        while path:
            page = self.call("GET", path)
            yield page["results"]
            address = urlsplit(page["next"] or "")
            path = f"{address.path}?{address.query}" if page["next"] else ""


def spread(
    base_url: str,
    work: Callable[[Connection, T], None],
    tasks: Iterable[T],
    threads: int = THREADS,
) -> None:
    """Work on all tasks in several threads, each with a connection of its own; after an error no
    other task begins. Raises the first error."""
    iterator, lock, has_failed = iter(tasks), threading.Lock(), threading.Event()

    def run(_number: int) -> None:
        with closing(Connection(base_url)) as connection:
            try:
                while not has_failed.is_set():
                    with lock:
                        task = next(iterator)
                    work(connection, task)
            except StopIteration:
                return
            except BaseException:
                has_failed.set()
                raise

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


def _id(answer: Mapping[str, Any]) -> object:
    return answer.get("ids", answer.get("id"))


def _require_same(answers: Sequence[Sequence[object]]) -> None:
    if answers[0] != answers[-1]:
        raise RuntimeError(f"a repeat became another message: {answers[0][:3]}, {answers[-1][:3]}")
