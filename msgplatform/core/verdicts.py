"""What an intake says of each item (an event, a text, a post, a lead) that it was given.

Items are judged one by one: a wrong one does not refuse its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from msgplatform.core.errors import Conflict, InvalidInput

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

Outcome = Literal["created", "duplicate", "rejected"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one item.

    `id` is what it became, of a duplicate what the first one became; `ids` instead of it when one
    item becomes several, as a text to several recipients does. Of a rejected one `code` is stable
    (`invalid`, `conflict`, or a flow's own), `field` says what to change and `reason` how.
    """

    outcome: Outcome
    id: int = 0
    ids: Sequence[str] = ()
    code: str = ""
    field: str = ""
    reason: str = ""

    @classmethod
    def rejected(cls, error: InvalidInput | Conflict) -> Verdict:
        return cls("rejected", code=error.code, field=error.field, reason=str(error))

    @classmethod
    def repeated(cls, same_payload: bool, id: int = 0, ids: Sequence[str] = ()) -> Verdict:
        """Of an item whose idempotency key is known, from an item that became `id` or `ids`."""
        return cls("duplicate", id, ids) if same_payload else cls.rejected(Conflict())

    def raise_rejected(self) -> None:
        """For a caller who sent one item: Conflict or InvalidInput if it was rejected."""
        if self.outcome != "rejected":
            return
        if self.code == Conflict.code:
            raise Conflict(self.reason)
        raise InvalidInput(self.reason, self.field)

    def shown(self) -> dict[str, Any]:
        """As callers read it, in JSON and in XML-RPC. Ids are strings."""
        if self.outcome == "rejected":
            return {
                "outcome": self.outcome,
                "code": self.code,
                "field": self.field,
                "detail": self.reason,
            }
        if self.ids:
            return {"outcome": self.outcome, "ids": list(self.ids)}
        return {"outcome": self.outcome, "id": str(self.id)}


def limit_items(items: Sequence[Any], most: int, name: str) -> None:
    """Raises InvalidInput unless there are 1 to `most`; `name` is the field that holds them."""
    if not 1 <= len(items) <= most:
        raise InvalidInput(f"Send 1 to {most} {name} in one request.", name)


def judge_each(
    items: Sequence[I], read: Callable[[I], R], accept: Callable[[list[R]], Sequence[Verdict]]
) -> list[Verdict]:
    """A verdict for each item, in order.

    `read` makes of an item what `accept` takes, or raises InvalidInput: that item is rejected.
    `accept` gets all that could be read at once (it is not called for none) and returns their
    verdicts; what it raises is raised, and then nothing is known of any item.
    """
    verdicts: list[Verdict | None] = []
    good: list[R] = []
    for item in items:
        try:
            good.append(read(item))
        except InvalidInput as error:
            verdicts.append(Verdict.rejected(error))
        else:
            verdicts.append(None)
    accepted = iter(accept(good) if good else ())
    return [next(accepted) if verdict is None else verdict for verdict in verdicts]
