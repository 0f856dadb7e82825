"""System checks of Feed's settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core import checks


@checks.register
def thresholds(**kwargs: Any) -> Iterable[checks.CheckMessage]:
    """An author must not be above and below at the same time."""
    if settings.FEED_PUSH_BELOW > settings.FEED_MERGE_ABOVE:
        yield checks.Error(
            f"FEED_PUSH_BELOW ({settings.FEED_PUSH_BELOW}) is larger than FEED_MERGE_ABOVE "
            f"({settings.FEED_MERGE_ABOVE})",
            hint="Set FEED_PUSH_BELOW to about four fifths of FEED_MERGE_ABOVE.",
            id="feed.E001",
        )
