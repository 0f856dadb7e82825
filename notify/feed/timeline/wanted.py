"""Which posts of whose timeline are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from notify.feed.models.users import NOTHING_WRITTEN

Parameters = list[str | int]
NEWEST = NOTHING_WRITTEN  # no post has an id as large


@dataclass(frozen=True, slots=True)
class Wanted:
    """Posts with `after` < id < `before`, in the timeline of `uid`; `own`: his own ones too."""

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
        """On the post `f`, but for its author and id."""
        conditions, parameters = "f.delete_date IS NULL", Parameters()
        for column, value in (("app_id", self.app_id), ("src_type", self.src_type)):
            if value:
                conditions += f" AND f.{column} = %s"
                parameters.append(value)
        return conditions, parameters
