"""JSON shapes of Feed's endpoints. Every id is a string: JavaScript rounds beyond 2^53."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from msgplatform.api.converters import ID_PATTERN
from msgplatform.api.intake import IdempotencyKeyField, ItemsField
from notify.feed.intake.posts import UID
from notify.feed.intake.relations import Action
from notify.feed.models import Friend
from notify.feed.models.posts import MAX_DATA, MAX_KIND, MAX_UID, Topic

UID_PATTERN = f"^{UID}$"
KIND_PATTERN = "^[A-Za-z0-9_.:-]*$"


class UidField(serializers.RegexField):
    """A user's id in the business system."""

    def __init__(self, **options: Any) -> None:
        options.setdefault(
            "help_text", "Your own id of a user: visible ASCII characters without blanks and /"
        )
        super().__init__(UID_PATTERN, max_length=MAX_UID, **options)


# Serializers of requests only document them: views decode bodies with msgspec.
class NewPostSerializer(serializers.Serializer[dict[str, Any]]):
    """A post to create. null is the same as leaving a field out."""

    uid = UidField(help_text="The author: your own id of the user")
    data = serializers.CharField(  # type: ignore[assignment]  # `data` is also a property
        max_length=MAX_DATA, help_text="What is posted: text, or JSON of your own as text"
    )
    topic = serializers.ChoiceField(
        choices=Topic.values,
        required=False,
        allow_null=True,
        help_text="friend (the default): friends get it; vip: friends and followers",
    )
    app_id = serializers.RegexField(
        KIND_PATTERN,
        max_length=MAX_KIND,
        required=False,
        allow_null=True,
        help_text="The application it comes from",
    )
    src_type = serializers.RegexField(
        KIND_PATTERN,
        max_length=MAX_KIND,
        required=False,
        allow_null=True,
        help_text="Its kind: update, note, greeting …",
    )
    idempotency_key = IdempotencyKeyField()


class NewPostsSerializer(serializers.Serializer[dict[str, Any]]):
    posts = ItemsField(NewPostSerializer, "1 to 1000 posts, 16 MiB in all")


class EditSerializer(serializers.Serializer[dict[str, Any]]):
    """The new text of a post."""

    data = serializers.CharField(max_length=MAX_DATA)  # type: ignore[assignment]


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
        """Without the fields' machinery, because pages of timelines are read more often than
        anything else."""
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


class ChangeSerializer(serializers.Serializer[dict[str, Any]]):
    """What `uid` does to `other`. Friendship is mutual; a block ends every relation between the
    two, and keeps new ones from being made."""

    action = serializers.ChoiceField(choices=list(Action))
    uid = UidField()
    other = UidField(help_text="The user who is befriended, followed, blocked …")


class ChangesSerializer(serializers.Serializer[dict[str, Any]]):
    changes = ItemsField(ChangeSerializer, "1 to 1000 changes, in their order")


class ChangedSerializer(serializers.Serializer[dict[str, Any]]):
    outcome = serializers.ChoiceField(
        choices=["changed", "unchanged"], help_text="unchanged: the relation was so already"
    )


class ChangeVerdictSerializer(serializers.Serializer[dict[str, Any]]):
    """`code`, `field` and `detail` for rejected."""

    outcome = serializers.ChoiceField(choices=["changed", "unchanged", "rejected"])
    code = serializers.ChoiceField(
        choices=["invalid", "blocked", "limit"],
        required=False,
        help_text="blocked: one of the two has blocked the other; limit: the reader has "
        "FEED_MAX_AUTHORS authors already",
    )
    field = serializers.CharField(required=False, help_text="What to change")
    detail = serializers.CharField(required=False)


class ChangeVerdictsSerializer(serializers.Serializer[dict[str, Any]]):
    results = ChangeVerdictSerializer(many=True)


class RelationSerializer(serializers.Serializer[Friend]):
    """`author`'s posts reach `reader`. In a block, `reader` has blocked `author`."""

    author = UidField(source="uid", help_text="Whose posts they are")
    relation = serializers.ChoiceField(choices=Friend.Relation.values)
    reader = UidField(source="fri_uid", help_text="Who receives them")
    since = serializers.DateTimeField(source="create_date")


class TimelineSerializer(serializers.Serializer[dict[str, Any]]):
    """A page, newest first."""

    results = PostSerializer(many=True)
    next = serializers.URLField(allow_null=True, help_text="The page of older posts")


class UnreadSerializer(serializers.Serializer[dict[str, Any]]):
    count = serializers.IntegerField(
        help_text="Posts of others that are newer than the last post that was read"
    )
    more = serializers.BooleanField(help_text="There may be more than `count`")


class ReadSerializer(serializers.Serializer[dict[str, Any]]):
    up_to = serializers.RegexField(
        ID_PATTERN, help_text="The id of the newest post that was seen; it never goes back"
    )
