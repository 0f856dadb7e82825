"""A trial lead: one made-up record, sent to a CRM at once, past the queues, and not counted."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext, gettext_noop

from crmsync.adapters.base import CRMAdapter, Record, Stored
from crmsync.adapters.client import record_answers
from crmsync.adapters.outcomes import Ok, Outcome, sentence
from crmsync.adapters.registry import open_adapter
from crmsync.models import Crm
from crmsync.trials import probing
from crmsync.trials.probing import mapped_fields
from msgplatform.core.errors import InvalidInput, NotNow, PlatformError, Unavailable
from msgplatform.core.http.engine import Response
from msgplatform.core.lazy_text import lazy_message

# Keys of trial leads begin so: no real lead is changed.
KEY = re.compile(r"test-[A-Za-z0-9-]{1,40}")
_SHOWN = 16_384  # characters of a body
# Session tokens in a CRM's answers; the adapter masks the credentials themselves.
_TOKEN = re.compile(r'("[^"]*(?:token|session|secret|password)[^"]*"\s*:\s*)"[^"]*"', re.I)


@dataclass(frozen=True)
class Call:
    """A request and its answer over HTTP, without secrets."""

    request: str
    status: int
    seconds: float
    answer: str


@dataclass(frozen=True)
class Trial:
    """The result; `removed` is None when the lead was to be left in the CRM."""

    outcome: Outcome
    calls: Sequence[Call]
    stored: Stored | None
    removed: Outcome | None

    @property
    def held(self) -> str:
        """The CRM's record before it was deleted, as JSON; '' when it was not found."""
        record = self.stored
        if record is None:
            return ""
        return json.dumps(dict(record.fields), indent=2, ensure_ascii=False, default=str)

    @property
    def is_good(self) -> bool:
        return isinstance(self.outcome, Ok)

    @property
    def words(self) -> str:
        if not isinstance(self.outcome, Ok):
            return sentence(self.outcome)
        return gettext("The CRM took it; its id there is %s.") % (self.outcome.remote_id or "–")

    @property
    def removal(self) -> str:
        if self.removed is None:
            return gettext("It was left in the CRM.")
        if isinstance(self.removed, Ok):
            return gettext("It was deleted from the CRM afterwards.")
        return gettext("It could not be deleted afterwards. %s") % sentence(self.removed)


def usual_key() -> str:
    """A new key."""
    return f"test-{int(time.time())}"


def usual_fields(row: Crm) -> dict[str, str]:
    """The fields that the CRM's policies fill in, with a value for a test."""
    return dict.fromkeys(mapped_fields(row, max_policies=20), "test")


def send(
    row: Crm, key: str, fields: Mapping[str, Any], remove: bool, audit: Callable[..., object]
) -> Trial:
    """Send a record with this KEY; with `remove` it is deleted afterwards. `audit` is called with
    an action and its target.

    Raises InvalidInput for a key that a real lead may have, Unavailable while others are being
    tried or there is no answer, and NotNow if the CRM cannot be asked, or has no such field.
    """
    if not KEY.fullmatch(key):
        text = gettext_noop("Use test- and letters, digits or -.")
        raise InvalidInput(lazy_message(text), "key")
    audit("crm_test_lead_sent", row.name, key=key)
    name, settings, credentials = row.adapter, row.settings, row.credentials
    record = Record(key, int(time.time()), fields)

    def work() -> Trial:
        adapter = open_adapter(name, settings, credentials)
        try:
            # Sign in here too, so that the page does not list the login among the calls.
            adapter.check_mapping(list(record.fields))
            with record_answers() as answers:
                (outcome,) = adapter.send([record])
            calls = [_call(adapter, answer) for answer in answers]
            crm_record = None
            with suppress(PlatformError):  # some CRMs cannot be read
                crm_record = adapter.read([record.key]).get(record.key)
            removal_outcome: Outcome | None = None
            if remove and isinstance(outcome, Ok):
                deletion = Record(record.key, record.version + 1, {}, True, outcome.remote_id)
                (removal_outcome,) = adapter.send([deletion])
            if crm_record:  # the mapping or the adapter's settings may contain a secret
                crm_record = replace(crm_record, fields=_clean(adapter, crm_record.fields))
            return Trial(outcome, calls, crm_record, removal_outcome)
        finally:
            adapter.close()

    try:
        return probing.ask(work)
    except Unavailable:
        raise
    except PlatformError as error:
        raise NotNow(probing.sentence(error)) from None


def _clean(adapter: CRMAdapter, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _clean(adapter, each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(adapter, each) for each in value]
    return adapter.without_secrets(value) if isinstance(value, str) else value


def _call(adapter: CRMAdapter, answer: Response) -> Call:
    def clean(text: bytes) -> str:
        words = text[: 4 * _SHOWN].decode("utf-8", "replace")[:_SHOWN]
        return _TOKEN.sub(r'\1"•••"', adapter.without_secrets(words))

    request = answer.request
    lines = [f"{request.method} {adapter.without_secrets(request.url)}"]
    for name, value in request.headers:
        text = value if name.lower() in ("content-type", "accept") else "•••"
        lines.append(adapter.without_secrets(f"{name}: {text}"))
    return Call(
        request="\n".join([*lines, "", clean(answer.request.body)]),
        status=answer.status,
        seconds=answer.seconds,
        answer=clean(answer.body) or answer.detail,
    )
