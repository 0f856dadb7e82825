"""null for an optional field is as good as leaving it out, in every flow."""

from typing import Any

import msgspec
import pytest

from crmsync.api.requests import NewLeadBody
from gateway.api.requests import Send
from gateway.lifecycle import store
from notify.api.views import PublishBody
from notify.feed.api.post_views import NewPostBody
from notify.feed.models import Feed
from notify.models import BizMsg
from tests.support import sms_rows
from tests.support.sms_rows import Caller

pytestmark = pytest.mark.django_db(transaction=True)
BODIES: dict[str, tuple[type[msgspec.Struct], dict[str, Any]]] = {
    "/api/v1/messages": (PublishBody, {"event_type": "order.paid", "payload": 1}),
    "/api/v1/feed/posts": (NewPostBody, {"uid": "1001", "data": "hello"}),
    "/api/v1/sms": (Send, {"to": "13800000000", "text": "hello"}),
}
shop = sms_rows.shop


def optional(body: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(body) if not field.required]


@pytest.mark.parametrize("path", BODIES)
def test_the_same_item(shop: Caller, path: str) -> None:
    """The same idempotency key with another item would be a conflict."""
    struct, body = BODIES[path]
    scoped = Caller("shop", "events:write", "feed:write", "sms:write")
    nulls = dict.fromkeys(optional(struct)) | body
    assert len(nulls) > len(body) + 1
    header = {"Idempotency-Key": "k"}
    first = scoped.post(path, nulls, **header)
    assert first.status_code == 202, first.content
    again = scoped.post(path, body, **header)
    assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
    answer = scoped.post(f"{path}/batch", {_items(path): [nulls]}).json()
    assert [result["outcome"] for result in answer["results"]] == ["created"]


def _items(path: str) -> str:
    return "posts" if path.endswith("posts") else "messages"


def test_what_is_stored(shop: Caller) -> None:
    scoped = Caller("shop", "events:write", "feed:write", "sms:write")
    made = {}
    for path, (struct, body) in BODIES.items():
        made[path] = scoped.post(path, dict.fromkeys(optional(struct)) | body).json()
    assert BizMsg.objects.get().channel == ""
    post = Feed.objects.get()
    assert (post.topic, post.app_id, post.src_type) == ("friend", "", "")
    (found,) = store.read(made["/api/v1/sms"]["ids"])
    assert (found.mt.priority, found.mt.reference, found.mt.schedule_at) == (0, "", 0.0)


def test_leads_take_null_too() -> None:
    """Their landing pages say what is needed; the body itself takes null everywhere."""
    nulls: dict[str, Any] = dict.fromkeys(optional(NewLeadBody))
    body = msgspec.convert({"appkey": "a", **nulls}, NewLeadBody)
    assert (body.extra_fields, body.uid_text, body.idempotency_key) == ({}, "", None)


def test_an_empty_topic_is_still_wrong(shop: Caller, work_redis: object) -> None:
    scoped = Caller("shop", "feed:write")
    answer = scoped.post("/api/v1/feed/posts", {"uid": "1", "data": "x", "topic": ""})
    assert answer.json()["errors"][0]["field"] == "topic"
