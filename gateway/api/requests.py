"""The body that a caller sends, the same over REST and XML-RPC, and the request that it stands
for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec

from gateway.intake import accept
from gateway.intake.request import Request
from msgplatform.core.intake.idempotency import check_key
from msgplatform.core.intake.verdicts import Verdict

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
    """Raises InvalidInput for a wrong idempotency key; the intake checks everything else."""
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
    """`accept.accept_later` for the fast intake, which knows bodies only."""
    accept.accept_later(request(biz, body), call)


def _seconds(moment: datetime | None) -> float:
    """Unix seconds, 0 for none; a time at or before 1970 is still a time."""
    return max(1.0, moment.timestamp()) if moment else 0.0
