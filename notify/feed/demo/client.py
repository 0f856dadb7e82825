"""The business system's program: its calls of the REST API, over one connection."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from msgplatform.demo.connection import Connection
from notify.feed.demo.account import Shown

_FEED = "/api/v1/feed"
BATCH = 1000
LONG_PAGE = 200

Change = tuple[str, str, str]  # action, uid, other
Draft = tuple[str, str, str]  # author, topic, data


class Client:
    """For one thread. Every request can be repeated, so a lost answer does no harm.

    Every method raises RuntimeError for an answer that it does not expect.
    """

    def __init__(self, connection: Connection, token: str) -> None:
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"}

    # -- relations -------------------------------------------------------------------------------
    def change_many(self, changes: Sequence[Change]) -> None:
        """At most BATCH changes, none of which a block forbids."""
        names = ("action", "uid", "other")
        body = {"changes": [dict(zip(names, change, strict=True)) for change in changes]}
        results = self._call("POST", "/relations/batch", body)["results"]
        if refused := [verdict for verdict in results if verdict["outcome"] == "rejected"]:
            raise RuntimeError(f"{len(refused)} changes were refused: {refused[:3]}")

    def change(self, change: Change) -> bool:
        """Make one change; False when a block forbids it."""
        names = ("action", "uid", "other")
        body = dict(zip(names, change, strict=True))
        path = f"{_FEED}/relations"
        answer = self._connection.json("POST", path, body, self._headers)
        return answer.require(200, 202, 409).status != 409

    # -- posts -----------------------------------------------------------------------------------
    def post_many(self, drafts: Sequence[Draft], repeat: bool = False) -> list[str]:
        """The ids of these posts; with `repeat` they are sent twice, as after a lost answer."""
        keys = [{"idempotency_key": uuid.uuid4().hex} for _ in drafts]
        posts = [{**_body(draft), **key} for draft, key in zip(drafts, keys, strict=True)]
        ids: list[str] = []
        for _ in range(2 if repeat else 1):
            results = self._call("POST", "/posts/batch", {"posts": posts})["results"]
            if refused := [verdict for verdict in results if verdict["outcome"] == "rejected"]:
                raise RuntimeError(f"{len(refused)} posts were refused: {refused[:3]}")
            answered = [str(verdict["id"]) for verdict in results]
            if ids and ids != answered:
                raise RuntimeError("posts that were sent again became other ones")
            ids = answered
        return ids

    def post(self, draft: Draft) -> str:
        headers = {**self._headers, "Idempotency-Key": uuid.uuid4().hex}
        answer = self._connection.json("POST", f"{_FEED}/posts", _body(draft), headers)
        return str(answer.require(200, 202).json()["id"])

    def edit(self, id: str, data: str) -> None:
        self._connection.json(
            "PATCH", f"{_FEED}/posts/{id}", {"data": data}, self._headers
        ).require(200)

    def delete(self, id: str) -> None:
        self._connection.json("DELETE", f"{_FEED}/posts/{id}", None, self._headers).require(204)

    # -- timelines -------------------------------------------------------------------------------
    def timeline(self, uid: str, limit: int = LONG_PAGE) -> list[Shown]:
        """All pages of it."""
        return [post for page in self.pages(uid, limit) for post in page]

    def pages(self, uid: str, limit: int) -> Iterable[list[Shown]]:
        path = f"/timelines/{quote(uid)}?limit={limit}"
        while path:
            found = self._call("GET", path)
            yield [(p["id"], p["uid"], p["topic"], p["data"]) for p in found["results"]]
            parts = urlsplit(found["next"] or "")
            path = f"{parts.path.removeprefix(_FEED)}?{parts.query}" if found["next"] else ""

    def unread(self, uid: str) -> int:
        return int(self._call("GET", f"/timelines/{quote(uid)}/unread")["count"])

    def mark_read(self, uid: str, up_to: str) -> None:
        self._connection.json(
            "POST", f"{_FEED}/timelines/{quote(uid)}/read", {"up_to": up_to}, self._headers
        ).require(200, 204)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._connection.json(method, _FEED + path, body, self._headers)
        return answer.require(200).json()


def _body(draft: Draft) -> dict[str, str]:
    return dict(zip(("uid", "topic", "data"), draft, strict=True))
