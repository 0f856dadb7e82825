"""Reading answers, for both clients: their types, the next page, whether a message has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypedDict, TypeVar
from urllib.parse import parse_qs, urlsplit

from .errors import UnexpectedAnswer
from .generated.models.delivery_status_enum import DeliveryStatusEnum
from .generated.models.event_state_enum import EventStateEnum
from .generated.models.message_detail import MessageDetail
from .generated.models.messages_list_status import MessagesListStatus
from .generated.models.new_job_request import NewJobRequest
from .generated.models.new_job_request_filter import NewJobRequestFilter
from .generated.models.publish_batch_request import PublishBatchRequest
from .generated.models.sms import Sms
from .generated.models.sms_state_enum import SmsStateEnum
from .generated.models.verdict import Verdict
from .generated.models.verdicts import Verdicts
from .generated.types import UNSET

T = TypeVar("T")
PAGE_ITEMS = 200  # the most that the platform gives
FOLLOW_SECONDS = 1.0  # between two looks at a message
_WAITING = {DeliveryStatusEnum.PENDING, DeliveryStatusEnum.QUEUED, DeliveryStatusEnum.HELD}
_UNDER_WAY = {SmsStateEnum.PENDING, SmsStateEnum.SUBMITTED, SmsStateEnum.RESPONDED}


class MessageFilters(TypedDict, total=False):
    """Which events a list has; what is left out allows all. Times need a zone."""

    event_type: str
    channel: str
    consumer: str
    subscription: str
    idempotency_key: str
    text: str
    status: MessagesListStatus | str
    since: datetime
    until: datetime


def checked_filters(filters: MessageFilters) -> dict[str, Any]:
    """The filters as the generated call takes them. Raises ValueError for a status that there is
    not, which names those that there are, and TypeError for a time that is a text."""
    checked: dict[str, Any] = {**filters}
    if status := checked.get("status"):
        if status not in list(MessagesListStatus):
            choices = ", ".join(MessagesListStatus)
            raise ValueError(f"There is no status {status!r}; there are {choices}")
        checked["status"] = MessagesListStatus(status)
    for name in ("since", "until"):
        check_time(name, checked.get(name))
    return checked


def check_time(name: str, moment: object) -> None:
    """Raises TypeError."""
    if moment is not None and not isinstance(moment, datetime):
        raise TypeError(f"{name} must be a datetime, not {moment!r}")


@contextmanager
def reading_answers() -> Iterator[None]:
    """Raises UnexpectedAnswer where an answer has another form than this release knows."""
    try:
        yield
    except UnicodeEncodeError:
        raise  # of the terminal
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(
            f"The platform's answer has an unknown form ({error!r}): is the client older than it?"
        ) from error


def expect(kind: type[T], answer: object) -> T:
    """The answer, if it is of this kind. Raises UnexpectedAnswer."""
    if not isinstance(answer, kind):
        raise UnexpectedAnswer(f"The platform answered with no {kind.__name__}: {answer!r}")
    return answer


def verdicts(request: PublishBatchRequest, answer: object) -> list[Verdict]:
    """The verdicts of a batch, one for each event. Raises UnexpectedAnswer."""
    results = expect(Verdicts, answer).results
    if len(results) != len(request.messages):
        raise UnexpectedAnswer(
            f"The platform answered with {len(results)} verdicts for {len(request.messages)} events"
        )
    return results


def next_cursor(address: str | None) -> str | None:
    """The cursor in the address of the next page; None on the last one."""
    values = parse_qs(urlsplit(address or "").query).get("cursor")
    return values[0] if values else None


def has_ended(message: MessageDetail) -> bool:
    """True if no delivery waits for anything, until somebody sends it again."""
    return message.state is EventStateEnum.DISTRIBUTED and not any(
        delivery.status in _WAITING for delivery in message.deliveries
    )


def has_sms_ended(sms: Sms) -> bool:
    """True if the state is final."""
    return sms.state not in _UNDER_WAY


def resend_request(
    flow: str, filters: Mapping[str, str], rate: int | None, key: str
) -> NewJobRequest:
    return NewJobRequest(
        flow=flow,
        action="resend",
        filter_=NewJobRequestFilter.from_dict(filters),
        rate=UNSET if rate is None else rate,
        idempotency_key=key,
    )
