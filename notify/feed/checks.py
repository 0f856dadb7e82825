"""System checks of Feed's settings."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core import checks

from msgplatform import env
from notify.feed.dispatcher.pace import parse_hours


@checks.register(env.CHECKS_TAG)
def thresholds(**kwargs: Any) -> Iterable[checks.CheckMessage]:
    """Check that no author is above one threshold and below the other at the same time."""
    if settings.FEED_WRITE_FANOUT_BELOW > settings.FEED_READ_FANOUT_ABOVE:
        yield checks.Error(
            f"FEED_WRITE_FANOUT_BELOW ({settings.FEED_WRITE_FANOUT_BELOW}) is larger than "
            f"FEED_READ_FANOUT_ABOVE ({settings.FEED_READ_FANOUT_ABOVE})",
            hint="Set FEED_WRITE_FANOUT_BELOW to about four fifths of FEED_READ_FANOUT_ABOVE.",
            id="feed.E001",
        )


@checks.register(env.CHECKS_TAG)
def hours_of_the_day(**kwargs: Any) -> Iterable[checks.CheckMessage]:
    """Check FEED_SHARE_BY_HOUR at the start, before a dispatcher uses it."""
    try:
        parse_hours(settings.FEED_SHARE_BY_HOUR)
    except ValueError as error:
        yield checks.Error(
            f"FEED_SHARE_BY_HOUR={settings.FEED_SHARE_BY_HOUR!r} is not usable: {error}",
            hint="Set FEED_SHARE_BY_HOUR to hours and the largest share in them, such as "
            "19-23:0.3,0-6:1",
            id="feed.E002",
        )
