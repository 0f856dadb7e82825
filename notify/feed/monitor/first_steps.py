"""What a newcomer sends first; nothing needs to be set up."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import FirstCall, FirstStep
from notify.feed.models import Feed, FeedUser, Friend

CALL = FirstCall(
    "/api/v1/feed/posts",
    {"uid": "ann", "data": "Hello", "idempotency_key": "ann-1"},
    "feed:write",
)


def steps() -> list[FirstStep]:
    return [
        FirstStep(
            _("Two users are friends"),
            _('POST /api/v1/feed/relations with {"action": "befriend", "uid": "ann", '
              '"other": "bob"}: your own user ids, nothing is registered first.'),
            Friend.objects.exists(),
        ),
        FirstStep(
            _("A post is accepted"),
            _("Post something with the command below."),
            Feed.objects.exists(),
        ),
        FirstStep(
            _("A timeline is read"),
            _("GET /api/v1/feed/timelines/bob has the post, newest first."),
            FeedUser.objects.filter(active=True).exists(),  # a visit makes readers active
        ),
    ]  # fmt: skip
