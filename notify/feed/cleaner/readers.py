"""All users, page by page in the order of the primary key."""

from __future__ import annotations

from notify.feed.models import FeedUser


class Readers:
    """Where a walk through all users stands. In memory only: after a restart it begins again."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._biz, self._after = -1, ""

    def page(self) -> list[FeedUser]:
        """The next users, all of one business system; none at the end."""
        rows = FeedUser.objects.filter(biz_id=self._biz, uid__gt=self._after).order_by("uid")
        # Nobody left in this system: go on with the next one that has users.
        while not (found := list(rows[: self._size])):
            later = FeedUser.objects.filter(biz_id__gt=self._biz).order_by("biz_id")
            biz = later.values_list("biz_id", flat=True).first()
            if biz is None:
                return []
            self._biz = biz
            rows = FeedUser.objects.filter(biz_id=biz).order_by("uid")
        self._after = found[-1].uid
        return found
