"""What a caller sends, the same over REST and XML-RPC, and the request that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated

import msgspec

from gateway.intake.accept import intake
from gateway.intake.request import MAX_EXPIRE_DAYS, MAX_REFERENCE, MAX_TEXT, Request
from msgplatform.api.bodies import IdempotencyKey, described, items, text
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

    account: Annotated[str | None, text("Its name; left out: your default account")] = None
    extension: Annotated[
        str | None, text("Digits behind the account's SP number", pattern="^[0-9]*$")
    ] = None
    priority: Annotated[int | None, described("0 when left out", minimum=0, maximum=9)] = None
    schedule_at: Annotated[Moment | None, described("Not before this time")] = None
    expire_at: Annotated[
        Moment | None,
        described(
            f"Not after this time, at most {MAX_EXPIRE_DAYS} days from now or, if there is one, "
            "from `schedule_at`"
        ),
    ] = None
    reference: Annotated[
        str | None,
        text("Your own; it comes back with every report", MAX_REFERENCE, "^[ -~]*$"),
    ] = None
    idempotency_key: IdempotencyKey = None


class Send(Options, forbid_unknown_fields=True, kw_only=True):
    """A text to be sent. null means the same as leaving a field out."""

    to: Annotated[
        str | Annotated[list[str], described("", minItems=1, maxItems=MAX_RECIPIENTS)],
        described(
            "A telephone number, 13800000000 or 8613800000000, or a list of them; how many your "
            "account may name at once is set in the console"
        ),
    ]
    text: Annotated[str, text("A long one is sent in parts", MAX_TEXT)]


class SendBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Texts to be sent."""

    messages: Annotated[list[Send], items("1 to 1000 texts, 10,000 recipients, 16 MiB in all")]


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
        prepared = taking_in.prepare(requests)
    except Temporary:
        raise
    except UNAVAILABLE as error:
        server = "SMS Redis" if isinstance(error, RedisError) else "database"
        raise Unavailable(
            f"The {server} does not answer; nothing was accepted. Repeat the request later."
        ) from error
    try:
        return taking_in.commit(prepared)
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
