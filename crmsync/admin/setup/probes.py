"""Ask other systems for the console: a few questions at a time, each with a deadline.

A form is posted unsaved, as it stands, and the answer is a piece of the page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from msgplatform.admin import ModelAdmin
from msgplatform.core import logging
from msgplatform.core.errors import Permanent, PlatformError, Unavailable

log = logging.get(__name__)

R = TypeVar("R")
# A thread of the web worker waits for the answer, and the API needs them.
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
    # A thread begins without the language and the time zone of the request.
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
            # The thread's own connections would stay open after it has ended.
            connections.close_all()
            _slots.release()

    # A daemon: a question that hangs must not keep the web server from ending.
    threading.Thread(target=run, name="console-probe", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise Unavailable(_("There was no answer within %d seconds.") % seconds) from None


def posted_form(
    model_admin: ModelAdmin, request: HttpRequest, pk: int | None
) -> forms.ModelForm[Any] | HttpResponse:
    """The form of a row, or of a new one, as it was posted; or an answer with the form's
    mistakes. Raises PermissionDenied, Http404."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    row = model_admin.get_object(request, str(pk)) if pk is not None else None
    if pk is not None and row is None:
        raise Http404
    is_allowed = (
        model_admin.has_change_permission(request, row)
        if row
        else model_admin.has_add_permission(request)
    )
    if not is_allowed:
        raise PermissionDenied
    form = model_admin.get_form(request, row, change=row is not None)(request.POST, instance=row)
    if form.is_valid():
        return form
    problems = [
        (form.fields[name].label if name in form.fields else "", " ".join(map(str, errors)))
        for name, errors in form.errors.items()
    ]
    return piece(request, "answer.html", tone="bad", wrong=problems)


def piece(request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    """A part of a page; browsers must not store it, since it may show personal data."""
    response = TemplateResponse(request, f"admin/crmsync/{template}", context)
    response["Cache-Control"] = "no-store"
    return response


def sentence(error: PlatformError) -> str:
    """The text of an error as a sentence."""
    return as_sentence(str(error))


def as_sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
