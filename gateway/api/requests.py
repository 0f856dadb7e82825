"""The body that a caller sends, the same over REST and XML-RPC, and the request that it stands
for."""

from datetime import datetime
from typing import Annotated

import msgspec

from gateway.intake.accept import MAX_RECIPIENTS
from gateway.intake.request import MAX_EXPIRE_DAYS, MAX_REFERENCE, MAX_TEXT, Request
from msgplatform.core.intake.idempotency import check_key
from msgplatform.core.tracing import context
from msgplatform.doors.api.bodies import IdempotencyKey, field, items, text

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything but recipients and text; None stands for a field that was left out. Times are ISO
    8601 with a zone."""

    account: Annotated[str | None, text("Its name; left out: your default account")] = None
    extension: Annotated[
        str | None, text("Digits behind the account's SP number", pattern="^[0-9]*$")
    ] = None
    priority: Annotated[int | None, field("0 when left out", minimum=0, maximum=9)] = None
    schedule_at: Annotated[Moment | None, field("Not before this time")] = None
    expire_at: Annotated[
        Moment | None,
        field(
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
        str | Annotated[list[str], field("", minItems=1, maxItems=MAX_RECIPIENTS)],
        field(
            "Telephone numbers, 13800000000 or 8613800000000, foreign ones as +12125550123; a "
            "single one needs no list. How many your account may name at once is set in the console"
        ),
    ]
    text: Annotated[str, text("A long one is sent in parts", MAX_TEXT)]


class SendBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Texts to be sent."""

    messages: Annotated[list[Send], items("1 to 1000 texts, 10,000 recipients, 16 MiB in all")]


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
        trace=context.begin(),
    )


def _seconds(moment: datetime | None) -> float:
    """Unix seconds, 0 for none; a time at or before 1970 is still a time."""
    return max(1.0, moment.timestamp()) if moment else 0.0
