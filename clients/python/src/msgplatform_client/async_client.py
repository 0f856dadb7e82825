"""The client for asyncio: the methods of `Client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, ParamSpec, Self, TypeVar, Unpack

import httpx

from . import answers
from .answers import MessageFilters, expect
from .client import Api
from .events import Event, batches, encode, new_key, sms_request
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
from .retries import (
    PATIENCE_SECONDS,
    AsyncRetryTransport,
    clean_key,
    proxy_of,
    raise_problem_async,
)

P = ParamSpec("P")
R = TypeVar("R")


class AsyncClient:
    """A business system's connection to the platform; `Client` has the words about each method.

    Operations without a method here: `await feed_posts_create.asyncio(client=client.api, body=…)`.
    """

    def __init__(
        self, url: str, key: str, *, patience: float = PATIENCE_SECONDS, timeout: float = 30.0
    ) -> None:
        key = clean_key(key)
        self.api = Api(base_url=url.rstrip("/"), token=key)
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"},
            timeout=timeout,
            transport=AsyncRetryTransport(httpx.AsyncHTTPTransport(proxy=proxy_of(url)), patience),
            event_hooks={"response": [raise_problem_async]},
        )
        self.api.set_async_httpx_client(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def publish(
        self, event_type: str, payload: Any, *, key: str = "", channel: str = ""
    ) -> Accepted:
        encode(payload)  # a wrong one is no fault of the answer
        body = Event(event_type, payload, key or new_key(), channel).request()
        answer = await self._call(messages_create.asyncio, client=self.api, body=body)
        return expect(Accepted, answer)

    async def publish_many(self, events: Iterable[Event]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for body in batches(events):
            answer = await self._call(messages_batch_create.asyncio, client=self.api, body=body)
            verdicts += answers.verdicts(body, answer)
        return verdicts

    async def send_sms(
        self,
        to: str | list[str],
        text: str,
        *,
        key: str = "",
        reference: str = "",
        account: str = "",
        schedule_at: datetime | None = None,
    ) -> AcceptedSms:
        body = sms_request(to, text, key, reference, account, schedule_at)
        return expect(AcceptedSms, await self._call(sms_create.asyncio, client=self.api, body=body))

    async def message(self, id: str, *, with_payload: bool = False) -> MessageDetail:
        expand = MessagesRetrieveExpand.PAYLOAD if with_payload else UNSET
        answer = await self._call(messages_retrieve.asyncio, id, client=self.api, expand=expand)
        return expect(MessageDetail, answer)

    async def messages(self, **filters: Unpack[MessageFilters]) -> AsyncIterator[Message]:
        checked = answers.checked_filters(filters)
        cursor: str | None = ""
        while cursor is not None:
            answer = await self._call(
                messages_list.asyncio,
                client=self.api,
                cursor=cursor or UNSET,
                limit=answers.PAGE_ITEMS,
                **checked,
            )
            page = expect(PaginatedMessageList, answer)
            for message in page.results:
                yield message
            cursor = answers.next_cursor(page.next_)

    async def follow(
        self, id: str, *, seconds: float | None = None, every: float = answers.FOLLOW_SECONDS
    ) -> AsyncIterator[MessageDetail]:
        async for state in _follow(lambda: self.message(id), answers.has_ended, seconds, every):
            yield state

    async def sms(self, id: str) -> Sms:
        return expect(Sms, await self._call(sms_retrieve.asyncio, id, client=self.api))

    async def follow_sms(
        self, id: str, *, seconds: float | None = None, every: float = answers.FOLLOW_SECONDS
    ) -> AsyncIterator[Sms]:
        async for state in _follow(lambda: self.sms(id), answers.has_sms_ended, seconds, every):
            yield state

    async def resend(
        self, *, flow: str = "notify", rate: int | None = None, key: str = "", **filters: str
    ) -> Job:
        body = answers.resend_request(flow, filters, rate, key or new_key())
        return expect(Job, await self._call(jobs_create.asyncio, client=self.api, body=body))

    async def job(self, id: str) -> Job:
        return expect(Job, await self._call(jobs_retrieve.asyncio, id, client=self.api))

    async def _call(
        self, function: Callable[P, Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        with answers.reading_answers():
            return await function(*args, **options)


async def _follow(
    look: Callable[[], Awaitable[R]],
    has_ended: Callable[[R], bool],
    seconds: float | None,
    every: float,
) -> AsyncIterator[R]:
    deadline = None if seconds is None else time.monotonic() + seconds
    latest: R | None = None
    while True:
        state = await look()
        if state != latest:
            yield state
        if has_ended(state):
            return
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError("The message has not ended yet")
        latest = state
        await asyncio.sleep(every)
