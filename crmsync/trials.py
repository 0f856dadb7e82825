"""Questions to a CRM outside of the queues: its connection, and a trial lead.

A trial lead is one made-up record, sent to a CRM at once, past the queues, and not counted. Each
question has a time limit, in a thread of its own."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

import msgspec
from django.utils import timezone, translation
from django.utils.translation import gettext as _, gettext_noop

from crmsync.adapters.base import Check, CRMAdapter, Record, Stored
from crmsync.adapters.client import record_answers
from crmsync.adapters.outcomes import Ok, Outcome, sentence
from crmsync.adapters.registry import open_adapter
from crmsync.models import Crm, Policy
from crmsync.policies import mapping
from msgplatform.core import logging
from msgplatform.core.daemons import bounded_call
from msgplatform.core.errors import (
    InvalidInput,
    NotNow,
    OutcomeUnknown,
    Permanent,
    PlatformError,
    Unavailable,
)
from msgplatform.core.http.engine import Response
from msgplatform.core.json.values import map_leaves
from msgplatform.core.lazy_text import lazy_message

log = logging.get(__name__)

R = TypeVar("R")
# Maximum of questions: each occupies a thread of the web worker, which the API needs.
AT_ONCE = 3
MAX_SECONDS = 20.0
_slots = threading.BoundedSemaphore(AT_ONCE)


class NoAnswer(Unavailable):
    """The time limit is over; the work goes on."""


def ask(work: Callable[[], R], seconds: float = MAX_SECONDS) -> R:
    """Do `work()` in a thread with connections of its own, and return its result.

    Raises the platform's errors as they are, and Permanent for any other error, which a foreign
    adapter may raise; NoAnswer when it takes longer than `seconds`, and Unavailable when too many
    questions are under way. Work that takes longer goes on until its own deadline, and keeps its
    slot until then.
    """
    if not _slots.acquire(blocking=False):
        raise Unavailable(_("Other tests wait for their answers; try again in a moment."))
    # A new thread does not have the language and the time zone of the request.
    language, zone = translation.get_language(), timezone.get_current_timezone()

    def run() -> R:
        try:
            with translation.override(language), timezone.override(zone):
                return work()
        except PlatformError:
            raise
        except Exception as error:
            log.exception("console_probe_failed")
            words = _(
                "This failed in an unexpected way (%s); the web server's log has the details."
            )
            raise Permanent(words % type(error).__name__) from None
        finally:
            _slots.release()

    try:
        return bounded_call.begin(run).result(seconds)
    except TimeoutError:
        raise NoAnswer(_("There was no answer within %d seconds.") % seconds) from None


def describe(error: PlatformError) -> str:
    """The text of an error as a sentence."""
    text = str(error).strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def mapped_fields(row: Crm, max_policies: int | None = None) -> list[str]:
    """The fields of a CRM, saved or not, that its policies fill in, each once. Only the first
    `max_policies` policies count."""
    names: list[str] = []
    mappings = Policy.objects.filter(crm_id=row.pk).values_list("mapping", flat=True)
    for text in mappings[:max_policies]:
        with suppress(InvalidInput):  # an alert about the policy says that already
            names += mapping.parse(text).fields
    return list(dict.fromkeys(names))


def ask_crm(row: Crm, work: Callable[[CRMAdapter], R]) -> R:
    """As `ask`, with an adapter of this CRM. Raises Undecryptable."""
    settings, credentials = row.settings, row.credentials

    def open_and_work() -> R:
        with closing(open_adapter(row.adapter, settings, credentials)) as adapter:
            return work(adapter)

    return ask(open_and_work)


def check(row: Crm) -> Check:
    """Test a CRM's settings and credentials, and the fields of its mappings."""
    names = mapped_fields(row)
    try:
        return ask_crm(row, lambda adapter: adapter.check(names))
    except PlatformError as error:
        return Check("settings", describe(error))


# Keys of trial leads begin so: no real lead is changed.
KEY = re.compile(r"test-[A-Za-z0-9-]{1,40}")
_SHOWN = 16_384  # characters of a body
# Session tokens in a CRM's answers; the adapter masks the credentials themselves.
_TOKEN = re.compile(r'("[^"]*(?:token|session|secret|password)[^"]*"\s*:\s*)"[^"]*"', re.I)


class Call(msgspec.Struct, frozen=True):
    """A request and its answer over HTTP, without secrets."""

    request: str
    status: int
    seconds: float
    answer: str


class Trial(msgspec.Struct, frozen=True):
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
        return _("The CRM took it; its id there is %s.") % (self.outcome.remote_id or "–")

    @property
    def removal(self) -> str:
        if self.removed is None:
            return _("It was left in the CRM.")
        if isinstance(self.removed, Ok):
            return _("It was deleted from the CRM afterwards.")
        return _("It could not be deleted afterwards. %s") % sentence(self.removed)


def usual_key() -> str:
    return f"test-{int(time.time())}"


def usual_fields(row: Crm) -> dict[str, str]:
    """The fields that the CRM's policies fill in, with a value for a test."""
    return dict.fromkeys(mapped_fields(row, max_policies=20), "test")


def send(
    row: Crm, key: str, fields: Mapping[str, Any], remove: bool, write_audit: Callable[..., object]
) -> Trial:
    """Send a record with this KEY; with `remove` it is deleted afterwards. `write_audit` is called
    with an action and its target.

    Raises InvalidInput for a key that a real lead may have, Unavailable while others are being
    tried, OutcomeUnknown when there is no answer in time, and NotNow if the CRM cannot be asked, or
    has no such field.
    """
    if not KEY.fullmatch(key):
        text = gettext_noop("Use test- and letters, digits or -.")
        raise InvalidInput(lazy_message(text), "key")
    write_audit("crm_test_lead_sent", row.name, key=key)
    record = Record(key, int(time.time()), fields)

    def work(adapter: CRMAdapter) -> Trial:
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
            fields_to_show = map_leaves(crm_record.fields, str, adapter.without_secrets)
            crm_record = msgspec.structs.replace(crm_record, fields=fields_to_show)
        return Trial(outcome, calls, crm_record, removal_outcome)

    try:
        return ask_crm(row, work)
    except NoAnswer as error:  # the lead may be stored after this: a repeat would be another one
        raise OutcomeUnknown(str(error)) from None
    except Unavailable:
        raise
    except PlatformError as error:
        raise NotNow(describe(error)) from None


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
