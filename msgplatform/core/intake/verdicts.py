"""An intake's verdict on each item (an event, a text, a post, a lead) of a request.

Items are judged one by one: an invalid item does not make the others fail.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from msgplatform.core.errors import Conflict, InvalidInput

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

Outcome = Literal["created", "duplicate", "rejected"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an item.

    `id` is the id of the stored item, or the first item's for a duplicate or a conflict. `ids`
    replaces `id` if an item is stored as several, such as a text to several recipients. For a
    rejected item `code` is a stable name (`invalid`, `conflict`, or a flow's own), `field` says
    what to change and `reason` how; `error` is the error of the rejection, if known. `recipients`
    is 0 for a stored item without recipients.
    """

    outcome: Outcome
    id: int = 0
    ids: Sequence[str] = ()
    code: str = ""
    field: str = ""
    reason: str = ""
    error: InvalidInput | Conflict | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    recipients: int | None = None

    @classmethod
    def rejected(cls, error: InvalidInput | Conflict) -> Self:
        # Drop the traceback, which would keep the objects of all frames.
        error = error.with_traceback(None)
        return cls("rejected", code=error.code, field=error.field, reason=str(error), error=error)

    @classmethod
    def duplicate_or_conflict(
        cls, is_same_payload: bool, id: int = 0, ids: Sequence[str] = ()
    ) -> Self:
        """The verdict on an item with the idempotency key of an earlier item, stored as `id` or
        `ids`: a duplicate for the same payload, a conflict (rejected) for another payload."""
        if is_same_payload:
            return cls("duplicate", id, ids)
        error = Conflict(first_id=ids[0] if ids else str(id or ""))
        return dataclasses.replace(cls.rejected(error), id=id)

    def raise_rejected(self) -> None:
        """Raise Conflict or InvalidInput (or the flow's subclass) if the item was rejected; for
        requests with one item."""
        if self.outcome != "rejected":
            return
        if self.error:
            raise self.error
        if self.code == Conflict.code:
            raise Conflict(self.reason)
        raise InvalidInput(self.reason, self.field)

    def as_dict(self) -> dict[str, Any]:
        """The verdict in an answer, in JSON and in XML-RPC. Ids are strings."""
        if self.outcome == "rejected":
            return {
                "outcome": self.outcome,
                "code": self.code,
                "field": self.field,
                "detail": self.reason,
            }
        if self.ids:
            return {"outcome": self.outcome, "ids": list(self.ids)}
        answer = {"outcome": self.outcome, "id": str(self.id)}
        return answer if self.recipients is None else {**answer, "recipients": self.recipients}


def limit_items(items: Sequence[Any], max_items: int, name: str) -> None:
    """Raise InvalidInput unless there are 1 to `max_items`; `name` is the field that holds them."""
    if not 1 <= len(items) <= max_items:
        raise InvalidInput(f"Send 1 to {max_items} {name} in one request.", name)


def judge_each(
    items: Sequence[I], read: Callable[[I], R], accept: Callable[[list[R]], Sequence[Verdict]]
) -> list[Verdict]:
    """A verdict for each item, in order.

    `read` parses an item, or raises InvalidInput to reject it. `accept` gets all parsed items at
    once (no call without items) and returns their verdicts. An error of `accept` is passed on; the
    verdict on every item is then unknown.
    """
    # None stands for an item that waits for its verdict from `accept`, so that the order is kept.
    verdicts: list[Verdict | None] = []
    parsed_items: list[R] = []
    for item in items:
        try:
            parsed_items.append(read(item))
        except InvalidInput as error:
            verdicts.append(Verdict.rejected(error))
        else:
            verdicts.append(None)
    further_verdicts = iter(accept(parsed_items) if parsed_items else ())
    return [next(further_verdicts) if verdict is None else verdict for verdict in verdicts]
