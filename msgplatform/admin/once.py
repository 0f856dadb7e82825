"""A page that shows a new secret one single time.

The secret waits in the session, which is kept on the server, encrypted, until that page is asked
for; it is never in a cookie, a message or the URL.
"""

from __future__ import annotations

import time
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from msgplatform.admin.base import ModelAdmin
from msgplatform.core.data import encryption
from msgplatform.core.errors import Undecryptable

_KEY = "shown_once"
# A page that was never asked for (the browser was closed) does not leave a secret behind for long.
KEPT_SECONDS = 300


class ShowsSecret(ModelAdmin):
    """For admins whose rows come with a secret: `return self.show_secret(...)` instead of
    another response."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.secret_view)
        return [path("secret/", view, name=self._secret_view_name()), *super().get_urls()]

    def _secret_view_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_secret"

    def show_secret(
        self, request: HttpRequest, title: str, text: str, secret: str, back: str
    ) -> HttpResponse:
        """Lead to the page with the secret. `text` says what to do with it, `back` is the address
        to go on to afterwards."""
        request.session[_KEY] = {
            "title": title, "text": text, "secret": encryption.encrypt(secret), "back": back,
            "until": time.time() + KEPT_SECONDS,
        }  # fmt: skip
        return redirect(f"{self.admin_site.name}:{self._secret_view_name()}")

    def secret_view(self, request: HttpRequest) -> HttpResponse:
        kept: dict[str, Any] | None = request.session.pop(_KEY, None)
        secret = _readable(kept["secret"]) if kept and kept["until"] >= time.time() else ""
        if not secret:
            messages.info(request, _("The secret has been shown already; it is not kept."))
            return redirect(
                f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist"
            )
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, **(kept or {}),
            "secret": secret,
        }  # fmt: skip
        response = TemplateResponse(request, "admin/secret.html", context)
        response["Cache-Control"] = "no-store"
        return response


def _readable(stored: str) -> str:
    """'' when the key was taken away meanwhile."""
    try:
        return encryption.decrypt(stored)
    except Undecryptable:
        return ""
