"""Pages about rows of a model that are no list and no form of the admin's: how they are shown, and
forms that send something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django import forms
from django.contrib.admin import ModelAdmin
from django.http import HttpRequest
from django.template.response import TemplateResponse

from msgplatform.core import logging, personal
from msgplatform.core.errors import InvalidInput, PlatformError
from msgplatform.core.flows.text import Text
from msgplatform.core.lazy_text import translated

log = logging.get(__name__)

R = TypeVar("R")


def show_page(
    model_admin: ModelAdmin[Any], request: HttpRequest, template: str, title: Text, **context: Any
) -> TemplateResponse:
    """The page in the console's frame. No cache keeps it: it may show a message's content."""
    frame = {
        **model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.opts,
    }  # fmt: skip
    if row := context.get("row"):
        # Masked for everybody: the browser keeps the names of tabs, whoever sat there.
        frame["row_name"] = personal.in_sentence(str(row))
    response = TemplateResponse(request, template, {**frame, **context})
    response["Cache-Control"] = "no-store"
    return response


def send_form(
    form: forms.Form,
    send: Callable[[dict[str, Any]], R],
    sentences: Mapping[type[PlatformError], Text] | None = None,
) -> R | None:
    """The result of `send` for the values. None if the form is wrong, or the platform refuses it:
    then the form has the reason, at its field or above all of them. `sentences` has other words for
    kinds of errors."""
    if not form.is_valid():
        return None
    try:
        return send(form.cleaned_data)
    except PlatformError as error:
        field = error.field if isinstance(error, InvalidInput) else ""
        if not isinstance(error, InvalidInput):
            log.warning("form_refused", form=type(form).__name__, why=str(error)[:200])
        text = (sentences or {}).get(type(error)) or translated(error.args[0])
        form.add_error(field if field in form.fields else None, str(text))
        return None
