"""The REST endpoints of timelines, under /api/v1/feed/."""

import re
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from django.urls import register_converter
from django.urls.converters import StringConverter
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import text
from msgplatform.doors.api.converters import ID, ID_PATTERN
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.query import QueryView
from msgplatform.doors.api.schema import operation
from msgplatform.messages.filters import number
from notify.feed import timeline
from notify.feed.api.post_views import KIND, UID, PostSerializer
from notify.feed.intake.posts import UID as UID_REGEX, check_kind, check_uid
from notify.feed.models import Feed

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 200
_BODY_BYTES = 4096
# The clocks of web servers and the database may differ by this.
_AHEAD = timedelta(minutes=1)

_UID = OpenApiParameter(
    "uid",
    UID,
    OpenApiParameter.PATH,
    description="The reader: your own id of the user, percent-encoded",
)


class UidConverter(StringConverter):
    """`<uid:uid>`: the id of a user, chosen by the business system, percent-encoded by callers."""

    regex = UID_REGEX

    def to_python(self, value: str) -> str:
        try:
            check_uid(value)
        except InvalidInput as error:
            raise ValueError(str(error)) from None  # Django answers 404
        return value


register_converter(UidConverter, "uid")


class ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """The newest post that a reader has seen."""

    up_to: Annotated[
        str,
        text("The id of the newest post that was seen; it never goes back", pattern=ID_PATTERN),
    ]


class TimelineSerializer(serializers.Serializer[dict[str, Any]]):
    """A page, newest first."""

    results = PostSerializer(many=True)
    next = serializers.URLField(allow_null=True, help_text="The page of older posts")


class UnreadSerializer(serializers.Serializer[dict[str, Any]]):
    count = serializers.IntegerField(
        help_text="Posts of others that are newer than the last post that was read"
    )
    more = serializers.BooleanField(help_text="There may be more than `count`")


class TimelineView(QueryView):
    """The timeline of a reader."""

    tag = "feed"
    required_scope = "feed:read"
    query = [
        OpenApiParameter(
            "cursor",
            ID,
            description="From `next` of the page before, or a post's id: the page has older posts",
        ),
        OpenApiParameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": _DEFAULT_LIMIT},
            description="The most posts on a page",
        ),
        OpenApiParameter("app_id", KIND, description="Only posts of this application"),
        OpenApiParameter("src_type", KIND, description="Only posts of this kind"),
    ]

    @operation(None, {200: TimelineSerializer}, parameters=[_UID])
    def get(self, request: Request, uid: str) -> Response:
        """Read a timeline.

        The posts that a user may see: of friends, of those whom the user follows, and their own;
        newest first. New posts are on the first page; reading the first page counts as a visit of
        the user. A page may be short, or empty, and have a `next`: go on until there is none.
        """
        query = self.query_values
        before = number(query["cursor"], "cursor") if "cursor" in query else None
        limit = query.get("limit", str(_DEFAULT_LIMIT))
        if not re.fullmatch("[0-9]{1,9}", limit) or not 1 <= int(limit) <= _MAX_LIMIT:
            raise InvalidInput(f"Set it to a number from 1 to {_MAX_LIMIT}.", "limit")
        app_id, src_type = query.get("app_id", ""), query.get("src_type", "")
        check_kind(app_id, "app_id")
        check_kind(src_type, "src_type")
        biz = caller_of(request).biz_id
        page = timeline.read(biz, uid, before, int(limit), app_id, src_type)
        following = None
        if page.next is not None:
            url = request.build_absolute_uri()
            following = replace_query_param(url, "cursor", str(page.next))
        return Response({"results": PostSerializer(page.posts, many=True).data, "next": following})


class UnreadView(APIView):
    """The unread posts of a reader."""

    tag = "feed"
    required_scope = "feed:read"

    @operation(None, {200: UnreadSerializer}, parameters=[_UID])
    def get(self, request: Request, uid: str) -> Response:
        """Count unread posts.

        How many posts of others are newer than the last post that the user has read.
        """
        unread = timeline.count_unread(caller_of(request).biz_id, uid)
        return Response({"count": unread.count, "more": unread.has_more})


class ReadView(APIView):
    """The newest post that a reader has seen."""

    tag = "feed"
    required_scope = "feed:write"
    max_body_bytes = _BODY_BYTES
    bodiless_methods = ("POST",)

    @operation(
        ReadBody,
        {204: "Noted; an older post changes nothing."},
        ("seen", {"up_to": "249443647488000845"}),
        parameters=[_UID],
    )
    def post(self, request: Request, uid: str) -> Response:
        """Note what was read.

        Note up to which post a user has read. It never goes back.
        """
        up_to = number(decode(request, ReadBody, _BODY_BYTES).up_to, "up_to")
        biz = caller_of(request).biz_id
        # The position never goes back, so a too large id would hide all later posts. The id of a
        # post is always valid, even if the clock of the web server that accepted it was ahead.
        is_ahead = up_to >= ids.first_id_at(sql.now() + _AHEAD)
        if is_ahead and not Feed.objects.filter(pk=up_to, biz_id=biz).exists():
            raise InvalidInput("Use the id of a post.", "up_to")
        timeline.mark_read(biz, uid, up_to)
        return Response(status=204)
