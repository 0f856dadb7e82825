"""Forms that are posted unsaved, as they stand, to ask another system; the answer is a piece of the
page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse

from msgplatform.doors.admin import ModelAdmin


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
