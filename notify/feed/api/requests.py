"""Request bodies. Ids of posts are strings, ids of users are the caller's own."""

from __future__ import annotations

import msgspec


class PostBody(msgspec.Struct, forbid_unknown_fields=True):
    """A post; `topic` says who gets it, by default friends."""

    uid: str
    data: str
    topic: str | None = None
    app_id: str | None = None
    src_type: str | None = None
    idempotency_key: str | None = None


class EditBody(msgspec.Struct, forbid_unknown_fields=True):
    """The new text of a post."""

    data: str


class RelationBody(msgspec.Struct, forbid_unknown_fields=True):
    """What `uid` does to `other`."""

    action: str
    uid: str
    other: str


class ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """The newest post that a reader has seen."""

    up_to: str
