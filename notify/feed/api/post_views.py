"""The REST endpoints of posts, under /api/v1/feed/. Every id is a string: JavaScript rounds beyond
2^53."""

from functools import partial
from typing import Annotated, Any

import msgspec
from django.http import Http404, HttpResponse
from msgspec.structs import replace
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.flows.messages import Fields, Values
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import IdempotencyKey, choice, items, text
from msgplatform.doors.api.intake import (
    AcceptedSerializer,
    BatchView,
    SingleIntake,
    VerdictsSerializer,
    answer,
    idempotency_key,
)
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.message_list import MessageListView
from msgplatform.doors.api.schema import operation
from msgplatform.messages import filters
from notify.feed.intake import posts
from notify.feed.intake.posts import Post
from notify.feed.messages.index import FIELDS, MESSAGES, NOT_DELETED, POSTS_ONLY
from notify.feed.models import Feed
from notify.feed.models.posts import MAX_DATA, MAX_KIND, MAX_UID, Topic

# JSON may write a character as two \uXXXX. The rest of a body is short.
MAX_POST_BYTES = MAX_DATA * 12 + 4096

UID_PATTERN = f"^{posts.UID}$"
KIND_PATTERN = "^[A-Za-z0-9_.:-]*$"
UID = {"type": "string", "pattern": UID_PATTERN}
KIND = {"type": "string", "pattern": KIND_PATTERN, "maxLength": MAX_KIND}
# A user's id in an answer.
UidField = partial(serializers.RegexField, UID_PATTERN, max_length=MAX_UID)

# The declared fields, without the topic of upkeep, which has no posts.
_FIELDS: Fields = {
    **FIELDS,
    "user": replace(FIELDS["user"], schema=UID),
    "topic": filters.choice(FIELDS["topic"].label, Topic),
    "app_id": replace(FIELDS["app_id"], schema=KIND),
    "kind": replace(FIELDS["kind"], schema=KIND),
}


def uid_text(help: str) -> msgspec.Meta:
    """The id of a user in a request body. Callers choose the ids of users."""
    return text(help, MAX_UID, UID_PATTERN)


def _kind(help: str) -> msgspec.Meta:
    return text(help, MAX_KIND, KIND_PATTERN)


class NewPostBody(msgspec.Struct, forbid_unknown_fields=True):
    """A post to create. null is the same as leaving a field out."""

    uid: Annotated[str, uid_text("The author: your own id of the user")]
    data: Annotated[str, text("What is posted: text, or JSON of your own as text", MAX_DATA)]
    topic: Annotated[
        str | None,
        choice(
            [(topic, topic) for topic in Topic.values],
            "friend (the default): friends get it; vip: friends and followers",
        ),
    ] = None
    app_id: Annotated[str | None, _kind("The application it comes from")] = None
    src_type: Annotated[str | None, _kind("Its kind: update, note, greeting …")] = None
    idempotency_key: IdempotencyKey = None


class NewPostsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Posts to create."""

    posts: Annotated[list[NewPostBody], items("1 to 1000 posts, 16 MiB in all")]


class EditBody(msgspec.Struct, forbid_unknown_fields=True):
    """The new text of a post."""

    data: Annotated[str, text(max_length=MAX_DATA)]


class PostSerializer(serializers.Serializer[Any]):
    """A post, as its author wrote it last."""

    id = serializers.CharField()
    uid = UidField(help_text="The author")
    topic = serializers.ChoiceField(choices=Topic.values)
    app_id = serializers.CharField()
    src_type = serializers.CharField()
    data = serializers.CharField()  # type: ignore[assignment]
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField(allow_null=True, help_text="Null when never edited")

    def to_representation(self, post: Any) -> dict[str, Any]:
        """The post as JSON, without the cost of the serializer's fields: pages of timelines are the
        most frequent answers."""
        return {
            "id": str(post.id),
            "uid": post.uid,
            "topic": post.topic,
            "app_id": post.app_id,
            "src_type": post.src_type,
            "data": post.data,
            "created_at": post.create_date,
            "updated_at": post.update_date,
        }


class PostListView(MessageListView):
    """List posts.

    Your system's posts, newest first, by author and the other filters. Deleted posts are listed
    with `state=deleted` only. A page may be short, or empty, and have a `next`: go on until there
    is none.
    """

    tag = "feed"
    required_scope = {"GET": "feed:read", "POST": "feed:write"}
    accepts_idempotency_key = True
    serializer_class = PostSerializer
    max_body_bytes = MAX_POST_BYTES
    store = replace(MESSAGES, fields=_FIELDS)

    def values(self, biz: int) -> Values:
        return {"state": NOT_DELETED, POSTS_ONLY: True, **super().values(biz)}

    @operation(
        NewPostBody,
        {
            202: (
                AcceptedSerializer,
                "Accepted and durable; its recipients get it within seconds.",
            ),
            200: (AcceptedSerializer, "A repeat: this post was accepted before."),
        },
        (
            "an update for friends",
            {
                "uid": "1001",
                "data": "Good morning!",
                "topic": "friend",
                "app_id": "mobile",
                "src_type": "update",
                "idempotency_key": "update-1001-17",
            },
        ),
    )
    def post(self, request: Request) -> HttpResponse:
        """Create a post.

        Post something; those who receive the author's posts see it within seconds. To be able to
        repeat a request whose answer was lost, send an idempotency key.
        """
        body = decode(request, NewPostBody, MAX_POST_BYTES)
        body.idempotency_key = idempotency_key(request, body.idempotency_key)
        return answer(posts.add(_post(caller_of(request).biz_id, body)))


class PostBatchView(BatchView):
    """Create many posts.

    Send up to 1000 posts in one request. A wrong post does not keep the others from being accepted:
    the answer has a result for each post, in order.
    """

    tag = "feed"
    required_scope = "feed:write"
    body = NewPostsBody
    results = VerdictsSerializer, "What became of each post; everything created is durable."

    def read(self, body: NewPostBody) -> Post:
        return _post(caller_of(self.request).biz_id, body)

    def accept(self, items: list[Post]) -> list[Verdict]:
        return posts.add_many(items)


# How the web process answers a plain POST without Django; `PostListView.post` defines the address.
POST = SingleIntake(
    "/api/v1/feed/posts",
    NewPostBody,
    lambda biz, body, call: posts.add_later(_post(biz, body), call),
)


# Timelines hold only the id of a post, so that readers see a change at once.
class PostView(APIView):
    """One post."""

    tag = "feed"
    required_scope = {"GET": "feed:read", "PATCH": "feed:write", "DELETE": "feed:write"}
    max_body_bytes = MAX_POST_BYTES

    @operation(None, {200: PostSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Show a post.

        One post, as its author wrote it last.
        """
        return _post_answer(request, pk)

    @operation(EditBody, {200: PostSerializer}, ("a new text", {"data": "Good night!"}))
    def patch(self, request: Request, pk: int) -> Response:
        """Edit a post.

        Change the text of a post; the rest stays as it is. Timelines show the new text at once.
        """
        body = decode(request, EditBody, MAX_POST_BYTES)
        if not posts.edit(caller_of(request).biz_id, pk, body.data):
            raise _missing()
        return _post_answer(request, pk)

    @operation(None, {204: "Deleted, now or before."})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete a post.

        Nobody sees the post from now on. The request can be repeated.
        """
        if not posts.delete(caller_of(request).biz_id, pk):
            raise _missing()
        return Response(status=204)


def _post(biz: int, body: NewPostBody) -> Post:
    return Post(
        biz,
        body.uid,
        body.data,
        Topic.FRIEND.value if body.topic is None else body.topic,
        body.app_id or "",
        body.src_type or "",
        body.idempotency_key,
    )


def _post_answer(request: Request, pk: int) -> Response:
    rows = Feed.objects.filter(pk=pk, biz_id=caller_of(request).biz_id, delete_date=None)
    post = rows.first()
    if post is None:
        raise _missing()
    return Response(PostSerializer(post).data)


def _missing() -> Http404:
    return Http404("There is no post with this id, or it is deleted.")
