"""The REST endpoints of relations, under /api/v1/feed/."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Annotated, Any

import msgspec
from django.db import connection
from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.core.data import sql
from msgplatform.core.errors import NotNow
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import choice, items
from msgplatform.doors.api.intake import BatchView
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.query import ListView
from msgplatform.doors.api.schema import operation
from notify.feed.api.post_views import UID, UidField, uid_text
from notify.feed.intake import relations
from notify.feed.intake.posts import check_uid
from notify.feed.intake.relations import Change
from notify.feed.models import Friend

_BODY_BYTES = 4096
_DIRECTIONS = ("recipients", "authors")
_OUTCOMES = {"created": "changed", "duplicate": "unchanged"}


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The action of `uid` towards `other`. Friendship is mutual; a block ends every relation
    between the two, and keeps new ones from being made."""

    action: Annotated[str, choice([(action, action) for action in relations.Action])]
    uid: Annotated[
        str, uid_text("Your own id of a user: visible ASCII characters without blanks and /")
    ]
    other: Annotated[str, uid_text("The user who is befriended, followed, blocked …")]


class ChangesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of relations."""

    changes: Annotated[list[ChangeBody], items("1 to 1000 changes, in their order")]


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


class _Relations:
    """Relations of one business system from several ranges of an index, in one order. It has the
    part of a queryset's interface that pagination needs.

    One statement reads all ranges, so that a row that another process moves to another range
    meanwhile is read once.
    """

    def __init__(self, parts: Sequence[QuerySet[Friend]], order: str = "") -> None:
        self._parts, self._order = parts, order

    def filter(self, condition: Q) -> _Relations:
        return _Relations([part.filter(condition) for part in self._parts], self._order)

    def order_by(self, name: str) -> _Relations:
        return _Relations(self._parts, name)

    def __getitem__(self, page: slice) -> list[Friend]:
        columns = ("uid", "relation", "fri_uid", "create_date")
        is_descending = self._order.startswith("-")
        # All rows are of one system, and the indexes begin with the system (see `sql.of_one`).
        system = "-biz_id" if is_descending else "biz_id"
        statements: list[str] = []
        parameters: list[Any] = []
        for number, part in enumerate(self._parts):
            rows = part.order_by(system, self._order).values(*columns)[: page.stop]
            statement, part_parameters = rows.query.sql_with_params()
            statements.append(f"SELECT * FROM ({statement}) AS part{number}")  # noqa: S608
            parameters += part_parameters
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(statements), parameters)
            # A raw cursor gives times as they are stored: UTC, without a zone.
            relations_read = [
                Friend(
                    uid=uid, relation=relation, fri_uid=other, create_date=at.replace(tzinfo=UTC)
                )
                for uid, relation, other, at in cursor.fetchall()
            ]
        column = self._order.lstrip("-")
        relations_read.sort(key=lambda row: str(getattr(row, column)), reverse=is_descending)
        return relations_read[: page.stop]


class RelationListView(ListView):
    """List a user's relations.

    A user's relations of one kind, in the order of the other users' ids. In a block the reader has
    blocked the author.
    """

    tag = "feed"
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
        return self.query_values.get("direction", _DIRECTIONS[0])

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):  # there is no database then
            return Friend.objects.none()
        uid, relation = self.query_values.get("uid", ""), self.query_values.get("relation", "")
        check_uid(uid)
        rows = sql.of_one(Friend.objects.all(), "biz_id", caller_of(self.request).biz_id)
        rows = rows.filter(relation=relation)
        if self.direction == "recipients":
            return _Relations([rows.filter(uid=uid)])
        rows = rows.filter(fri_uid=uid)
        return _Relations([rows.filter(delivery=delivery) for delivery in Friend.Delivery.values])

    @operation(
        ChangeBody,
        {200: (ChangedSerializer, "The relation is as asked for.")},
        ("1001 follows 2002", {"action": "follow", "uid": "1001", "other": "2002"}),
    )
    def post(self, request: Request) -> Response:
        """Change a relation.

        Timelines change at once. The answer is 409 when one of the two users has blocked the other
        one, or the reader has FEED_MAX_AUTHORS relations that bring posts already.
        """
        body = decode(request, ChangeBody, _BODY_BYTES)
        (verdict,) = relations.change_many([_change(request, body)])
        if verdict.code in (relations.BLOCKED, relations.FULL):
            raise NotNow(verdict.reason)
        verdict.raise_rejected()
        return Response(_outcome_of(verdict))


class RelationBatchView(BatchView):
    """Change many relations.

    Up to 1000 changes in one request, applied in their order, with a result for each. A change can
    be repeated: it says what the relation is to be, so that the second time nothing changes.
    """

    tag = "feed"
    required_scope = "feed:write"
    body = ChangesBody
    results = ChangeVerdictsSerializer, "What became of each change, in their order."
    example = (
        "two changes",
        {
            "changes": [
                {"action": "befriend", "uid": "1001", "other": "1002"},
                {"action": "block", "uid": "1001", "other": "3003"},
            ]
        },
    )

    def read(self, body: ChangeBody) -> Change:
        return _change(self.request, body)

    def accept(self, items: list[Change]) -> list[Verdict]:
        return relations.change_many(items)

    def as_dict(self, verdict: Verdict) -> dict[str, Any]:
        return _outcome_of(verdict)


def _change(request: Request, body: ChangeBody) -> Change:
    return Change(caller_of(request).biz_id, body.action, body.uid, body.other)


def _outcome_of(verdict: Verdict) -> dict[str, Any]:
    """The answer about a change. It has no id, because a change makes no object with an id."""
    if verdict.outcome == "rejected":
        return verdict.as_dict()
    return {"outcome": _OUTCOMES[verdict.outcome]}
