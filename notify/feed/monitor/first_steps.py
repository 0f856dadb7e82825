"""The first calls of a newcomer; nothing needs to be set up."""

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows.setup import FirstCall, FirstStep
from notify.feed.models import Feed, FeedUser, Friend

_SCOPE = "feed:write"
CALLS = (
    FirstCall(
        "/api/v1/feed/relations", {"action": "befriend", "uid": "ann", "other": "bob"}, _SCOPE
    ),
    FirstCall(
        "/api/v1/feed/posts",
        {"uid": "ann", "data": "Hello", "idempotency_key": "ann-1"},
        _SCOPE,
    ),
)


def steps() -> list[FirstStep]:
    return [
        FirstStep(
            _("Two users are friends"),
            _("The first command below makes them so. The ids are those of your own users, "
              "nothing is registered first."),
            Friend.objects.exists(),
        ),
        FirstStep(
            _("A post is accepted"),
            _("The second command below posts something."),
            Feed.objects.exists(),
        ),
        FirstStep(
            _("A timeline is read"),
            _("GET /api/v1/feed/timelines/bob has the post, newest first."),
            FeedUser.objects.filter(active=True).exists(),  # a visit makes readers active
        ),
    ]  # fmt: skip
