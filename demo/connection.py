"""An open connection to the platform's API, which repeats requests that failed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_PATIENCE_SECONDS = 120.0  # for one request
_RETRY_STATUSES = (429, 503)  # the platform asks to send the request again later


@dataclass(frozen=True)
class Answer:
    """`headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)

    def require(self, *statuses: int) -> Answer:
        """Raises RuntimeError for another status."""
        if self.status not in statuses:
            raise RuntimeError(f"HTTP {self.status}: {self.text[:300]}")
        return self


class Connection:
    """For one thread. Every request may be repeated: it has an idempotency key, or sets the same
    values again."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._http = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=60)

    def request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        """The first answer that is not "try again later". Raises RuntimeError when there is none
        in two minutes."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                self.send(method, path, body, headers)
                answer = self.receive()
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                answer = Answer(503, {}, {}, str(error))
            if answer.status not in _RETRY_STATUSES:
                return answer
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"nothing but HTTP {answer.status} in {_PATIENCE_SECONDS:g} s: {path}"
                )
            time.sleep(0.5)

    def json(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        text = None if body is None else json.dumps(body)
        return self.request(method, path, text, {"Content-Type": "application/json", **headers})

    def send(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> None:
        self._http.request(method, path, None if body is None else body.encode(), dict(headers))

    def receive(self) -> Answer:
        response = self._http.getresponse()
        cookies = {}
        for line in response.headers.get_all("Set-Cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            cookies[name] = value
        return Answer(
            response.status,
            {k.lower(): v for k, v in response.headers.items()},
            cookies,
            response.read().decode(),
        )

    def close(self) -> None:
        self._http.close()
