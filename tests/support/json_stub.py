"""A server with a JSON interface on a real socket, whose answers a function makes."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_sinks import Seen, Sink


class Asked:
    """A request as the function sees it."""

    def __init__(self, seen: Seen) -> None:
        self.method, self.target, _ = seen.line.split(" ", 2)
        parts = urlsplit(self.target)
        self.path = parts.path
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.headers, self.raw = seen.headers, seen.body

    @property
    def body(self) -> Any:
        return json.loads(self.raw) if self.raw else None


class Answer:
    """`body` goes as JSON, bytes as they are. `drop`: the connection is cut instead."""

    def __init__(
        self, body: Any = None, status: int = 200, drop: bool = False, **headers: str
    ) -> None:
        self.body, self.status, self.drop, self.headers = body, status, drop, headers

    def raw(self) -> bytes:
        data = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        if self.status == 204:
            data = b""
        lines = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + data


def serving(answer: Callable[[Asked], Answer]) -> Sink:
    """A server to be used in `with`; what `answer` raises is answered with 500."""

    async def behaviour(
        sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            seen = await sink.read(reader)
            try:
                made = answer(Asked(seen))
            except Exception as error:
                sink.trouble.append(repr(error))
                made = Answer({"message": repr(error)}, 500)
            if made.drop:
                return
            writer.write(made.raw())
            await writer.drain()

    return Sink(behaviour)


def asked(sink: Sink) -> list[Asked]:
    return [Asked(seen) for seen in sink.requests]


Routes = Mapping[tuple[str, str], Callable[[Asked], Answer]]


def routed(routes: Routes) -> Callable[[Asked], Answer]:
    """Answers by method and path; 404 for others."""

    def answer(request: Asked) -> Answer:
        made = routes.get((request.method, request.path))
        return made(request) if made else Answer({"message": f"no {request.path}"}, 404)

    return answer
