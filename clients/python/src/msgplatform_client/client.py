"""The client for programs without asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, ParamSpec, Self, TypeVar, Unpack

import httpx

from . import answers
from .answers import MessageFilters, expect
from .events import Event, batches, encode, new_key, sms_request
from .generated import AuthenticatedClient
from .generated.api.bulk_jobs import jobs_create, jobs_retrieve
from .generated.api.events import (
    messages_batch_create,
    messages_create,
    messages_list,
    messages_retrieve,
)
from .generated.api.sms import sms_create, sms_retrieve
from .generated.models.accepted import Accepted
from .generated.models.accepted_sms import AcceptedSms
from .generated.models.job import Job
from .generated.models.message import Message
from .generated.models.message_detail import MessageDetail
from .generated.models.messages_retrieve_expand import MessagesRetrieveExpand
from .generated.models.paginated_message_list import PaginatedMessageList
from .generated.models.sms import Sms
from .generated.models.verdict import Verdict
from .generated.types import UNSET
from .retries import PATIENCE_SECONDS, RetryTransport, clean_key, proxy_of, raise_problem

P = ParamSpec("P")
R = TypeVar("R")


class Api(AuthenticatedClient):
    """The generated client; its `repr`, which gets into logs, is without the API key."""

    def __repr__(self) -> str:
        return f"<Api of {self._base_url}>"


class Client:
    """A business system's connection to the platform, for any number of threads.

    Every call repeats its request for `patience` seconds while the platform is away, under the same
    idempotency key. `timeout` is for each step of an attempt, in seconds: to connect, to send a
    piece, to get the next bytes of the answer. Every method raises errors of `PlatformError`; `api`
    is for operations that have no method here:
    `feed_posts_create.sync(client=client.api, body=…)`.
    """

    def __init__(
        self, url: str, key: str, *, patience: float = PATIENCE_SECONDS, timeout: float = 30.0
    ) -> None:
        key = clean_key(key)
        self.api = Api(base_url=url.rstrip("/"), token=key)
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"},
            timeout=timeout,
            transport=RetryTransport(httpx.HTTPTransport(proxy=proxy_of(url)), patience),
            event_hooks={"response": [raise_problem]},
        )
        self.api.set_httpx_client(self._http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def publish(
        self, event_type: str, payload: Any, *, key: str = "", channel: str = ""
    ) -> Accepted:
        """Publish an event. It is on the platform's disk when this returns.

        `key` names what happened, `order-7-paid`: published again with it, the event is a
        `duplicate`. Without a key only the repeats of this one call are. Raises TypeError or
        ValueError for a payload that cannot be JSON, such as a datetime, a Decimal or NaN.
        """
        encode(payload)  # a wrong one is no fault of the answer
        body = Event(event_type, payload, key or new_key(), channel).request()
        return expect(Accepted, self._call(messages_create.sync, client=self.api, body=body))

    def publish_many(self, events: Iterable[Event]) -> list[Verdict]:
        """Publish events, a thousand in a request: a verdict for each, in order.

        A wrong event is `rejected` with its reason and keeps no other from being accepted. After an
        error the same events can be published again: they have their keys. A payload that
        cannot be JSON raises as in `publish`, and no event of its thousand is sent.
        """
        verdicts: list[Verdict] = []
        for body in batches(events):
            answer = self._call(messages_batch_create.sync, client=self.api, body=body)
            verdicts += answers.verdicts(body, answer)
        return verdicts

    def send_sms(
        self,
        to: str | list[str],
        text: str,
        *,
        key: str = "",
        reference: str = "",
        account: str = "",
        schedule_at: datetime | None = None,
    ) -> AcceptedSms:
        """Send a text. The answer has an id for each recipient; `key` is as in `publish`."""
        body = sms_request(to, text, key, reference, account, schedule_at)
        return expect(AcceptedSms, self._call(sms_create.sync, client=self.api, body=body))

    def message(self, id: str, *, with_payload: bool = False) -> MessageDetail:
        """An event with its deliveries and their attempts."""
        expand = MessagesRetrieveExpand.PAYLOAD if with_payload else UNSET
        answer = self._call(messages_retrieve.sync, id, client=self.api, expand=expand)
        return expect(MessageDetail, answer)

    def messages(self, **filters: Unpack[MessageFilters]) -> Iterator[Message]:
        """Your events, newest first, page after page."""
        checked = answers.checked_filters(filters)
        cursor: str | None = ""
        while cursor is not None:
            answer = self._call(
                messages_list.sync,
                client=self.api,
                cursor=cursor or UNSET,
                limit=answers.PAGE_ITEMS,
                **checked,
            )
            page = expect(PaginatedMessageList, answer)
            yield from page.results
            cursor = answers.next_cursor(page.next_)

    def follow(
        self, id: str, *, seconds: float | None = None, every: float = answers.FOLLOW_SECONDS
    ) -> Iterator[MessageDetail]:
        """The event as it is now, and after each change, until it has ended.

        It looks `every` so many seconds. Raises TimeoutError after `seconds`.
        """
        yield from _follow(lambda: self.message(id), answers.has_ended, seconds, every)

    def sms(self, id: str) -> Sms:
        """The state of a text."""
        return expect(Sms, self._call(sms_retrieve.sync, id, client=self.api))

    def follow_sms(
        self, id: str, *, seconds: float | None = None, every: float = answers.FOLLOW_SECONDS
    ) -> Iterator[Sms]:
        """The text as it is now, and after each change, until its state is final."""
        yield from _follow(lambda: self.sms(id), answers.has_sms_ended, seconds, every)

    def resend(
        self, *, flow: str = "notify", rate: int | None = None, key: str = "", **filters: str
    ) -> Job:
        """Start a job that sends messages again. It needs a management key (`manage:jobs`).

        The filters are those of the flow's action `resend`: `ids="1,2"`,
        `subscription="orders/warehouse"`. `rate` is in messages a second.
        """
        body = answers.resend_request(flow, filters, rate, key or new_key())
        return expect(Job, self._call(jobs_create.sync, client=self.api, body=body))

    def job(self, id: str) -> Job:
        """How far a job is."""
        return expect(Job, self._call(jobs_retrieve.sync, id, client=self.api))

    def _call(self, function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        with answers.reading_answers():
            return function(*args, **options)


def _follow(
    look: Callable[[], R], has_ended: Callable[[R], bool], seconds: float | None, every: float
) -> Iterator[R]:
    deadline = None if seconds is None else time.monotonic() + seconds
    latest: R | None = None
    while True:
        state = look()
        if state != latest:
            yield state
        if has_ended(state):
            return
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError("The message has not ended yet")
        latest = state
        time.sleep(every)
