"""Request bodies, and the id of a user in an address. Ids of posts are strings. Callers choose the
ids of users."""

from typing import Annotated

import msgspec
from django.urls import register_converter
from django.urls.converters import StringConverter

from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.bodies import IdempotencyKey, choice, items, text
from msgplatform.doors.api.converters import ID_PATTERN
from notify.feed.intake.posts import UID, check_uid
from notify.feed.intake.relations import Action
from notify.feed.models.posts import MAX_DATA, MAX_KIND, MAX_UID, Topic

UID_PATTERN = f"^{UID}$"
UID_HELP = "Your own id of a user: visible ASCII characters without blanks and /"
KIND_PATTERN = "^[A-Za-z0-9_.:-]*$"


def _uid(help: str = UID_HELP) -> msgspec.Meta:
    return text(help, MAX_UID, UID_PATTERN)


def _kind(help: str) -> msgspec.Meta:
    return text(help, MAX_KIND, KIND_PATTERN)


class NewPostBody(msgspec.Struct, forbid_unknown_fields=True):
    """A post to create. null is the same as leaving a field out."""

    uid: Annotated[str, _uid("The author: your own id of the user")]
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


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """What `uid` does to `other`. Friendship is mutual; a block ends every relation between the
    two, and keeps new ones from being made."""

    action: Annotated[str, choice([(action, action) for action in Action])]
    uid: Annotated[str, _uid()]
    other: Annotated[str, _uid("The user who is befriended, followed, blocked …")]


class ChangesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of relations."""

    changes: Annotated[list[ChangeBody], items("1 to 1000 changes, in their order")]


class ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """The newest post that a reader has seen."""

    up_to: Annotated[
        str,
        text("The id of the newest post that was seen; it never goes back", pattern=ID_PATTERN),
    ]


class UidConverter(StringConverter):
    """`<uid:uid>`: the id of a user, chosen by the business system, percent-encoded by callers."""

    regex = UID

    def to_python(self, value: str) -> str:
        try:
            check_uid(value)
        except InvalidInput as error:
            raise ValueError(str(error)) from None  # Django answers 404
        return value


register_converter(UidConverter, "uid")
