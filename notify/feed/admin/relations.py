"""Relations of a user, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from msgplatform.models import Biz
from notify.feed.models import Friend

PAGE = 50
_Relation = Friend.Relation


@dataclass(frozen=True)
class Side:
    """Rows of one relation in which the column `own` has the user, and `other` the other user.

    `delivery` is the heading above how posts are delivered; '' when none are.
    """

    title: Any
    relation: str
    own: str
    other: str
    delivery: Any
    empty: Any


SIDES = {
    "friends": Side(
        _("Friends"), _Relation.FRIEND, "fri_uid", "uid", _("Their posts are"),
        _("No friends."),
    ),
    "follows": Side(
        _("Follows"), _Relation.FOLLOW, "fri_uid", "uid", _("Their posts are"),
        _("Follows nobody."),
    ),
    "followers": Side(
        _("Followers"), _Relation.FOLLOW, "uid", "fri_uid", _("Posts reach them"),
        _("No followers."),
    ),
    "blocks": Side(
        _("Has blocked"), _Relation.BLOCK, "fri_uid", "uid", "", _("Has blocked nobody."),
    ),
    "blocked": Side(
        _("Is blocked by"), _Relation.BLOCK, "uid", "fri_uid", "", _("Is blocked by nobody."),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    other: str
    address: str  # the query of their page
    delivery: str
    since: datetime


def page(biz: Biz, uid: str, side: Side, after: str) -> tuple[Sequence[Line], str]:
    """The next relations by the other user's id, and where the page after this one begins; '' when
    there is none."""
    found = Friend.objects.filter(
        biz_id=biz.pk, relation=side.relation,
        **{side.own: uid, f"{side.other}__gt": after},
    )  # fmt: skip
    if side.own == "fri_uid":
        # In the index of readers the delivery comes before the relation: every delivery is named,
        # so that the index can be used.
        found = found.filter(delivery__in=Friend.Delivery.values)
    rows = found.order_by(side.other)[: PAGE + 1]
    lines = [
        Line(
            other := getattr(row, side.other),
            urlencode({"system": biz.name, "uid": other}),
            str(Friend.Delivery(row.delivery).label),
            row.create_date,
        )
        for row in rows
    ]
    return lines[:PAGE], lines[PAGE - 1].other if len(lines) > PAGE else ""
