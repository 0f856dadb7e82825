"""Pages of statistics: a form that says what to show, the page, and the same as a CSV file.

Everything that was chosen is in the address, so that a page can be sent to a colleague.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from msgplatform.admin.base import ModelAdmin
from msgplatform.admin.csv_file import csv_response
from msgplatform.core.errors import InvalidInput

F = TypeVar("F", bound=forms.Form)
View = Callable[[HttpRequest], Any]


def page(
    model_admin: ModelAdmin,
    form_class: type[F],
    template: str,
    context: Callable[[F], Mapping[str, Any]],
) -> View:
    """For whoever may see the model's rows. The template gets `form`, `query` (what was chosen,
    for the address of the file) and, once the form is valid, what `context(form)` returns."""

    def view(request: HttpRequest) -> HttpResponse:
        form = _form(model_admin, form_class, request)
        found: Mapping[str, Any] = {}
        if form.is_valid():
            try:
                found = context(form)
            except InvalidInput as error:
                form.add_error(None, str(error))
        shown = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Statistics"), "opts": model_admin.opts, "form": form,
            "query": request.GET.urlencode(), **found,
        }  # fmt: skip
        return TemplateResponse(request, template, shown)

    return view


def as_csv(
    model_admin: ModelAdmin,
    form_class: type[F],
    file: Callable[[F], tuple[str, Iterable[list[str]]]],
) -> View:
    """`file(form)` returns the file's name and its rows, which are sent while they are read."""

    def view(request: HttpRequest) -> Any:
        form = _form(model_admin, form_class, request)
        if not form.is_valid():
            return HttpResponse(str(form.errors.as_text()), status=400, content_type="text/plain")
        return csv_response(*file(form))

    return view


def _form(model_admin: ModelAdmin, form_class: type[F], request: HttpRequest) -> F:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    return form_class(request.GET)
