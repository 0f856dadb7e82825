"""Uses every method of msgplatform-client once. It runs where only the client is installed."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar

import httpx
from msgplatform_client import (
    Client,
    Event,
    KeyConflict,
    NotAuthorized,
    NotFound,
    Refused,
    Unreachable,
)
from msgplatform_client.errors import retry_after
from msgplatform_client.generated.api.feed import feed_posts_create, feed_posts_list
from msgplatform_client.generated.models import Accepted, NewPostRequest, PaginatedPostList
from msgplatform_client.generated.models.messages_list_status import MessagesListStatus

E = TypeVar("E", bound=Exception)


def error_of(kind: type[E], call: Callable[[], object]) -> E:
    """The error of this kind that the call raises."""
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"it was accepted: {answer}")


URL, KEY = os.environ["MSGPLATFORM_URL"], os.environ["MSGPLATFORM_KEY"]
MANAGEMENT_KEY = os.environ["MSGPLATFORM_MANAGEMENT_KEY"]
began_at = datetime.now(UTC)

with Client(f"{URL}/", KEY) as client:
    # More than one page, and more than one batch.
    events = [Event("example.many", {"number": n, "名": "小米"}, f"many-{n}") for n in range(1_200)]
    verdicts = client.publish_many(iter(events))
    assert [verdict.outcome for verdict in verdicts] == ["created"] * len(events)
    ids = [verdict.id for verdict in verdicts]
    listed = [message.id for message in client.messages(event_type="example.many", since=began_at)]
    assert listed == ids[::-1]
    again = client.publish_many(events[:3])
    assert [(verdict.outcome, verdict.id) for verdict in again] == [
        ("duplicate", i) for i in ids[:3]
    ]
    wrong = client.publish_many([Event("no type", 1), Event("example.right", None)])
    assert [verdict.outcome for verdict in wrong] == ["rejected", "created"]
    assert wrong[0].field == "event_type"

    sent = client.publish("example.one", [1, 2.5, "小米"], key="one", channel="shop-1")
    assert (
        client.publish("example.one", [1, 2.5, "小米"], key="one", channel="shop-1").id == sent.id
    )
    assert client.publish("example.one", 1).id != client.publish("example.one", 1).id
    *_, ended = client.follow(sent.id, seconds=240, every=0.2)
    assert [delivery.status for delivery in ended.deliveries] == ["delivered"]
    assert client.message(sent.id, with_payload=True).payload == [1, 2.5, "小米"]
    by_channel = client.messages(channel="shop-1", status=MessagesListStatus.DELIVERED)
    assert [message.id for message in by_channel] == [sent.id]
    assert [each.id for each in client.messages(channel="shop-1", status="delivered")] == [sent.id]
    wrong_status = error_of(ValueError, lambda: next(client.messages(status="gone"), None))
    assert "delivered" in str(wrong_status)
    today: Any = "today"
    wrong_time = error_of(TypeError, lambda: next(client.messages(since=today), None))
    assert "must be a datetime" in str(wrong_time)

    conflict = error_of(
        KeyConflict, lambda: client.publish("example.one", 2, key="one", channel="shop-1")
    )
    assert conflict.is_permanent
    refused = error_of(Refused, lambda: client.publish("no type", 1))
    assert [wrong_field.field for wrong_field in refused.errors] == ["event_type"], refused.errors
    assert error_of(NotFound, lambda: client.message("1")).kind == "not-found"
    # The system has no account.
    assert error_of(Refused, lambda: client.send_sms("13800000000", "hello")).is_permanent

    assert KEY not in repr(client.api), "the key gets into logs"
    # What has no method of its own.
    post = feed_posts_create.sync(client=client.api, body=NewPostRequest(uid="ann", data="hello"))
    assert isinstance(post, Accepted)
    posts = feed_posts_list.sync(client=client.api)
    assert isinstance(posts, PaginatedPostList)
    assert [each.id for each in posts.results] == [post.id]

with Client(URL, MANAGEMENT_KEY) as manager:
    job = manager.resend(ids=sent.id, status="delivered", rate=10)
    assert job.total == 1
    assert manager.job(job.id).action == "resend"
    refused = error_of(Refused, lambda: manager.resend(ids=sent.id, status="delivered", rate=0))
    assert [wrong_field.field for wrong_field in refused.errors] == ["rate"], refused.errors

with Client(URL, "mp_wrong") as stranger:
    assert error_of(NotAuthorized, lambda: stranger.publish("example.one", 1)).is_permanent

with Client("http://127.0.0.1:9", KEY, patience=0) as nowhere:
    assert not error_of(Unreachable, lambda: nowhere.publish("example.one", 1)).is_permanent
in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
for text in ("3600", in_an_hour, in_an_hour.replace("GMT", "-0000")):
    pause = retry_after(httpx.Response(429, headers={"Retry-After": text}))
    assert pause, text
    assert 3_500 < pause <= 3_600, text
assert retry_after(httpx.Response(429)) is None
for text in ("soon", f"Fri, 01 Jan {10**20} 00:00:00 GMT"):
    assert retry_after(httpx.Response(429, headers={"Retry-After": text})) is None, text
print("every method works")
