"""A page that shows a new secret exactly once.

Until that page is opened, the secret is encrypted in the session, which is kept on the server; it
is never in a cookie, a message or the URL.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from msgplatform.core.errors import Undecryptable
from msgplatform.core.secrets import encryption
from msgplatform.doors.admin.base import ModelAdmin
from msgplatform.doors.admin.confirmation import confirmed
from msgplatform.doors.admin.pages import show_page
from msgplatform.person_limits import answers_limited_people

_KEY = "shown_once"
# If the page is never opened (the browser was closed), the secret is not kept longer than this.
KEPT_SECONDS = 300


class SecretPageAdmin(ModelAdmin):
    """An admin that creates secrets with its rows: its response is `self.show_secret(...)`."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.secret_view)
        return [path("secret/", view, name=self._secret_view_name()), *super().get_urls()]

    def _secret_view_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_secret"

    def show_secret(
        self, request: HttpRequest, title: str, text: str, secret: str, next_url: str
    ) -> HttpResponse:
        """Redirect to the page with the secret. `text` says what to do with it, `next_url` is
        the page to go to afterwards."""
        request.session[_KEY] = {
            "title": title, "text": text, "secret": encryption.encrypt(secret), "back": next_url,
            "until": time.time() + KEPT_SECONDS,
        }  # fmt: skip
        return redirect(f"{self.admin_site.name}:{self._secret_view_name()}")

    @confirmed  # a secret that is made before the proof may never be seen
    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().add_view(request, form_url, extra_context)

    @answers_limited_people  # the session has it of the person's own form
    @confirmed
    def secret_view(self, request: HttpRequest) -> HttpResponse:
        entry: dict[str, Any] | None = request.session.pop(_KEY, None)
        secret = ""
        if entry and entry["until"] >= time.time():
            with suppress(Undecryptable):  # its encryption key was removed meanwhile
                secret = encryption.decrypt(entry["secret"])
        if not secret:
            text = _("The secret was shown already, or was not fetched in time; it is not kept.")
            messages.info(request, text)
            return redirect(
                f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist"
            )
        context = {**(entry or {}), "secret": secret}
        return show_page(self, request, "admin/secret.html", **context)
