"""What a caller sends, the same over REST and XML-RPC, and the request that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated

import msgspec

from gateway.intake.accept import intake
from gateway.intake.request import Request
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import (
    UNAVAILABLE,
    InvalidInput,
    OutcomeUnknown,
    Temporary,
    Unavailable,
)
from msgplatform.core.intake.group_commit import GroupCommit
from msgplatform.core.intake.idempotency import check_key
from msgplatform.core.intake.verdicts import Verdict

# Over all items of one call: they are stored by one script, during which Redis does nothing else.
MAX_RECIPIENTS = 10_000
# Single requests that share a script, and the recipients of one that may: a large one would hold
# up the others.
_MAX_GROUP, _FEW = 100, 100

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything but recipients and text; None: left out. Times are ISO 8601 with a zone."""

    account: str | None = None
    extension: str | None = None
    priority: int | None = None
    schedule_at: Moment | None = None
    expire_at: Moment | None = None
    reference: str | None = None
    idempotency_key: str | None = None


class Send(Options, forbid_unknown_fields=True, kw_only=True):
    """A text for one recipient or for several."""

    to: str | list[str]
    text: str


def request(biz: int, body: Send) -> Request:
    """Raises InvalidInput for a wrong idempotency key; the rest is checked by intake."""
    key = body.idempotency_key
    if key is not None:
        check_key(key)
    return Request(
        biz=biz,
        to=(body.to,) if isinstance(body.to, str) else tuple(body.to),
        text=body.text,
        account=body.account or "",
        extension=body.extension or "",
        priority=body.priority or 0,
        schedule_at=_seconds(body.schedule_at),
        expire_at=_seconds(body.expire_at),
        reference=body.reference or "",
        idempotency_key=key or "",
    )


def accept_later(
    biz: int, body: Send, call: Callable[[Verdict | None, Exception | None], None]
) -> None:
    """Accept one, together with whatever else arrives in this process meanwhile; `call` gets the
    verdict or the error, in another thread. Raises InvalidInput, also for many recipients, which
    get a script of their own, or Unavailable: then it is not called."""
    if not isinstance(body.to, str) and len(body.to) > _FEW:
        raise InvalidInput(f"more than {_FEW} recipients do not share a script", "to")
    _committer().submit_later(request(biz, body), call)


# Made with the first request: it has a thread, which a process that forks must not have before.
@lru_cache(maxsize=1)
def _committer() -> GroupCommit[Request, Verdict]:
    return GroupCommit(accept, max_items=_MAX_GROUP, name="sms-intake")


def accept(requests: Sequence[Request]) -> list[Verdict]:
    """All of them durable, or an exception: Unavailable when a server failed before anything could
    be stored, OutcomeUnknown when Redis failed while they were."""
    taking_in = intake()
    try:
        batch = taking_in.prepare(requests)
    except Temporary:
        raise
    except UNAVAILABLE as error:
        server = "SMS Redis" if isinstance(error, RedisError) else "database"
        raise Unavailable(
            f"The {server} does not answer; nothing was accepted. Repeat the request later."
        ) from error
    try:
        return taking_in.commit(batch)
    except RedisError as error:
        raise OutcomeUnknown(f"Redis failed: {type(error).__name__}") from error


def accept_many(requests: Sequence[Request]) -> list[Verdict]:
    """`accept` for a caller's batch. Raises InvalidInput for too many recipients in all."""
    if sum(len(each.to) for each in requests) > MAX_RECIPIENTS:
        raise InvalidInput(f"Name at most {MAX_RECIPIENTS} recipients in one request.", "messages")
    return accept(requests)


def _seconds(moment: datetime | None) -> float:
    """Unix seconds, 0 for none; a time at or before 1970 is still a time."""
    return max(1.0, moment.timestamp()) if moment else 0.0
