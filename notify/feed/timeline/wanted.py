"""Which posts of a timeline are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from notify.feed.models.users import NOTHING_WRITTEN

Parameters = list[str | int]
NEWEST = NOTHING_WRITTEN  # no post has an id as large


@dataclass(frozen=True, slots=True)
class Wanted:
    """Posts with `after` < id < `before` in the timeline of `uid`; `own`: with the user's own."""

    biz: int
    uid: str
    after: int = 0
    before: int = NEWEST
    app_id: str = ""
    src_type: str = ""
    own: bool = True

    @property
    def nothing(self) -> bool:
        return self.after + 1 >= self.before

    def conditions(self) -> tuple[str, Parameters]:
        """SQL conditions on the post `f`, without those on its author and id."""
        conditions, parameters = "f.delete_date IS NULL", Parameters()
        for column, value in (("app_id", self.app_id), ("src_type", self.src_type)):
            if value:
                conditions += f" AND f.{column} = %s"
                parameters.append(value)
        return conditions, parameters
