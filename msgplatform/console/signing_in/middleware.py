"""The frame of the console around pages of django-allauth."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse

PREFIX = "/console/sign-in/"


class SignInMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_template_response(
        self, request: HttpRequest, response: TemplateResponse
    ) -> TemplateResponse:
        """The library's views know nothing of the side bar."""
        if request.path.startswith(PREFIX):
            frame = admin.site.each_context(request)
            response.context_data = {**frame, **(response.context_data or {})}
        return response
