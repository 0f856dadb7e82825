"""JSON shapes of answers. Every id is a string: JavaScript rounds beyond 2^53."""

from typing import Any

from rest_framework import serializers

from notify.feed.api.requests import UID_HELP, UID_PATTERN
from notify.feed.models import Friend
from notify.feed.models.posts import MAX_UID, Topic


class UidField(serializers.RegexField):
    """A user's id in the business system."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("help_text", UID_HELP)
        super().__init__(UID_PATTERN, max_length=MAX_UID, **options)


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
        "FEED_MAX_AUTHORS relations that bring posts already (a friend who is followed too "
        "counts twice)",
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
