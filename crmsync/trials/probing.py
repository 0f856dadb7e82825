"""Ask other systems for a person who waits: a few questions at a time, each with a deadline. One
question is the test of a CRM's settings and credentials."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from django.db import connections
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from crmsync.adapters.base import Check
from crmsync.adapters.registry import open_adapter
from crmsync.models import Crm, Policy
from crmsync.policies import mapping
from msgplatform.core import logging
from msgplatform.core.errors import InvalidInput, Permanent, PlatformError, Unavailable

log = logging.get(__name__)

R = TypeVar("R")
# Maximum of questions: each occupies a thread of the web worker, which the API needs.
AT_ONCE = 3
MAX_SECONDS = 20.0
_slots = threading.BoundedSemaphore(AT_ONCE)


def ask(work: Callable[[], R], seconds: float = MAX_SECONDS) -> R:
    """Do `work()` in a thread with connections of its own, and return its result.

    Raises the platform's errors as they are, and Permanent for any other error, which a foreign
    adapter may raise; Unavailable when it takes longer than `seconds`, or too many questions are
    under way. Work that takes longer goes on until its own deadline, and keeps its slot until then.
    """
    if not _slots.acquire(blocking=False):
        raise Unavailable(_("Other tests wait for their answers; try again in a moment."))
    answer: Future[R] = Future()
    # A new thread does not have the language and the time zone of the request.
    language, zone = translation.get_language(), timezone.get_current_timezone()

    def run() -> None:
        try:
            with translation.override(language), timezone.override(zone):
                answer.set_result(work())
        except PlatformError as error:
            answer.set_exception(error)
        except Exception as error:
            log.exception("console_probe_failed")
            words = _(
                "This failed in an unexpected way (%s); the web server's log has the details."
            )
            answer.set_exception(Permanent(words % type(error).__name__))
        finally:
            # Otherwise the thread's own connections would stay open after its end.
            connections.close_all()
            _slots.release()

    # A daemon thread: a hanging question must not keep the web server from ending.
    threading.Thread(target=run, name="console-probe", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise Unavailable(_("There was no answer within %d seconds.") % seconds) from None


def sentence(error: PlatformError) -> str:
    """The text of an error as a sentence."""
    return as_sentence(str(error))


def as_sentence(text: str) -> str:
    text = text.strip()
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


def check(row: Crm) -> Check:
    """Test a CRM's settings and credentials, and the fields of its mappings."""
    names = mapped_fields(row)
    try:
        settings, credentials = row.settings, row.credentials

        def work() -> Check:
            adapter = open_adapter(row.adapter, settings, credentials)
            try:
                return adapter.check(names)
            finally:
                adapter.close()

        return ask(work)
    except PlatformError as error:
        return Check("settings", sentence(error))
