"""The REST endpoints of relations, under /api/v1/feed/."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.api.access.authentication import caller_of
from msgplatform.api.intake import BatchView
from msgplatform.api.json import decode
from msgplatform.api.query import ListView
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.intake.verdicts import Verdict
from notify.feed.api import lists
from notify.feed.api.post_views import UID
from notify.feed.api.requests import RelationBody
from notify.feed.api.serializers import (
    ChangedSerializer,
    ChangeSerializer,
    ChangesSerializer,
    ChangeVerdictsSerializer,
    RelationSerializer,
)
from notify.feed.intake import relations
from notify.feed.intake.posts import check_uid
from notify.feed.intake.relations import Change
from notify.feed.models import Friend

_BODY_BYTES = 4096
_DIRECTIONS = ("recipients", "authors")
_OUTCOMES = {"created": "changed", "duplicate": "unchanged"}


@extend_schema(tags=["feed"])
@extend_schema_view(
    get=extend_schema(
        summary="List a user's relations",
        description="A user's relations of one kind, in the order of the other users' ids. In a "
        "block the reader has blocked the author.",
    ),
)
class RelationListView(ListView):
    """Change a relation, or list the relations of a user."""

    required_scope = {"GET": "feed:read", "POST": "feed:write"}
    answers_not_now = True
    serializer_class = RelationSerializer
    max_body_bytes = _BODY_BYTES
    query = [
        OpenApiParameter("uid", UID, required=True, description="Whose relations"),
        OpenApiParameter(
            "relation", str, required=True, enum=Friend.Relation.values, description="Their kind"
        ),
        OpenApiParameter(
            "direction",
            str,
            enum=_DIRECTIONS,
            default=_DIRECTIONS[0],
            description="recipients: who receives the user's posts; authors: whose posts the "
            "user receives. With relation=block: who has blocked the user; whom the user has "
            "blocked.",
        ),
    ]

    @property
    def keyset_ordering(self) -> tuple[str, ...]:
        return ("uid",) if self.direction == "authors" else ("fri_uid",)

    @property
    def direction(self) -> str:
        value = self.query_values.get("direction", _DIRECTIONS[0])
        return _one_of(_DIRECTIONS, value, "direction")

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):  # there is no database then
            return Friend.objects.none()
        uid, relation = self.query_values.get("uid", ""), self.query_values.get("relation", "")
        check_uid(uid)
        _one_of(Friend.Relation.values, relation, "relation")
        read = lists.authors if self.direction == "authors" else lists.recipients
        return read(caller_of(self.request).biz_id, uid, relation)

    @extend_schema(
        summary="Change a relation",
        description="Timelines change at once. The answer is 409 when one of the two users has "
        "blocked the other one, or the reader has FEED_MAX_AUTHORS authors already.",
        request=ChangeSerializer,
        responses={200: OpenApiResponse(ChangedSerializer, "The relation is as asked for.")},
        examples=[
            OpenApiExample(
                "1001 follows 2002",
                {"action": "follow", "uid": "1001", "other": "2002"},
                request_only=True,
            )
        ],
    )
    def post(self, request: Request) -> Response:
        body = decode(request, RelationBody, _BODY_BYTES)
        (verdict,) = relations.change_many([_change(request, body)])
        if verdict.code in (relations.BLOCKED, relations.FULL):
            raise NotNow(verdict.reason)
        verdict.raise_rejected()
        return Response(_shown(verdict))


@extend_schema(tags=["feed"])
@extend_schema_view(
    post=extend_schema(
        summary="Change many relations",
        description="Up to 1000 changes in one request, applied in their order, with a result for "
        "each. A change can be repeated: it says what the relation is to be, so that the second "
        "time nothing changes.",
        request=ChangesSerializer,
        responses={
            200: OpenApiResponse(
                ChangeVerdictsSerializer, "What became of each change, in their order."
            )
        },
        examples=[
            OpenApiExample(
                "two changes",
                {
                    "changes": [
                        {"action": "befriend", "uid": "1001", "other": "1002"},
                        {"action": "block", "uid": "1001", "other": "3003"},
                    ]
                },
                request_only=True,
            )
        ],
    )
)
class RelationBatchView(BatchView):
    """Up to 1000 changes in one request, applied in their order, with a verdict for each.

    A change can be repeated: it says what the relation is to be, so that the second time nothing
    changes.
    """

    required_scope = "feed:write"
    item = RelationBody
    items_name = "changes"

    def read(self, body: RelationBody) -> Change:
        return _change(self.request, body)

    def accept(self, items: list[Change]) -> list[Verdict]:
        return relations.change_many(items)

    def shown(self, verdict: Verdict) -> dict[str, Any]:
        return _shown(verdict)


def _change(request: Request, body: RelationBody) -> Change:
    return Change(caller_of(request).biz_id, body.action, body.uid, body.other)


def _shown(verdict: Verdict) -> dict[str, Any]:
    """Without an id: a change makes nothing that could have one."""
    if verdict.outcome == "rejected":
        return verdict.as_dict()
    return {"outcome": _OUTCOMES[verdict.outcome]}


def _one_of(known: Any, asked: str, field: str) -> str:
    if asked not in known:
        raise InvalidInput(f"Use one of: {', '.join(known)}.", field)
    return asked
