"""What a caller sends, the same over REST and XML-RPC, and the request that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from gateway.intake.accept import Verdict, intake
from gateway.intake.request import Request
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput, OutcomeUnknown

MAX_ITEMS = 1000
# Over all items of one call: they are stored by one script, during which Redis does nothing else.
MAX_RECIPIENTS = 10_000

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything but recipients and text. Times are ISO 8601 with a zone."""

    account: str = ""
    extension: str = ""
    priority: int = 0
    schedule_at: Moment | None = None
    expire_at: Moment | None = None
    reference: str = ""
    idempotency_key: str | None = None


class Send(Options, forbid_unknown_fields=True, kw_only=True):
    """A text for one recipient or for several."""

    to: str | list[str]
    text: str


def request(biz: int, body: Send, header: str | None = None) -> Request:
    """`header` is Idempotency-Key. Raises InvalidInput when it and the body's key differ."""
    key = body.idempotency_key
    if header is not None and key not in (None, header):
        raise InvalidInput(
            "the header Idempotency-Key and the body's idempotency_key differ; send one of them",
            "idempotency_key",
        )
    key = header if header is not None else key
    if key == "":
        raise InvalidInput("use 1 to 128 visible ASCII characters", "idempotency_key")
    return Request(
        biz=biz,
        to=(body.to,) if isinstance(body.to, str) else tuple(body.to),
        text=body.text,
        account=body.account,
        extension=body.extension,
        priority=body.priority,
        schedule_at=_seconds(body.schedule_at),
        expire_at=_seconds(body.expire_at),
        reference=body.reference,
        idempotency_key=key or "",
    )


def accept(requests: Sequence[Request]) -> list[Verdict]:
    """All of them durable, or an exception. Raises OutcomeUnknown when Redis failed."""
    try:
        return intake().send_many(requests)
    except RedisError as error:
        raise OutcomeUnknown(f"Redis failed: {type(error).__name__}") from error


def send_all(
    biz: int, items: Sequence[Any], read: Callable[[Any, type[Send]], Send]
) -> list[dict[str, Any]]:
    """A verdict for each item, in order; `read` makes its body or raises InvalidInput."""
    if not 1 <= len(items) <= MAX_ITEMS:
        raise InvalidInput(f"Send 1 to {MAX_ITEMS} messages in one request.", "messages")
    verdicts: list[dict[str, Any]] = []
    requests: dict[int, Request] = {}
    for place, item in enumerate(items):
        verdicts.append({})
        try:
            requests[place] = request(biz, read(item, Send))
        except InvalidInput as error:
            verdicts[place] = rejected("invalid", error.field, str(error))
    wanted = list(requests.values())
    if sum(len(each.to) for each in wanted) > MAX_RECIPIENTS:
        raise InvalidInput(f"Name at most {MAX_RECIPIENTS} recipients in one request.", "messages")
    for place, verdict in zip(requests, accept(wanted) if wanted else (), strict=True):
        verdicts[place] = shown(verdict)
    return verdicts


def shown(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a caller reads it."""
    if verdict.outcome == "rejected":
        return rejected(verdict.code, verdict.field, verdict.reason)
    return {"outcome": verdict.outcome, "ids": list(verdict.ids)}


def rejected(code: str, field: str, detail: str) -> dict[str, Any]:
    return {"outcome": "rejected", "code": code, "field": field, "detail": detail}


def _seconds(moment: datetime | None) -> float:
    """Unix seconds, 0 for none; a time at or before 1970 is still a time."""
    return max(1.0, moment.timestamp()) if moment else 0.0
