"""Pages about a model's rows beside the admin's lists and forms: how they are shown, forms that
send something, and the page that shows a new secret exactly once."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from msgplatform.core import flows, logging, personal
from msgplatform.core.errors import InvalidInput, PlatformError, Undecryptable
from msgplatform.core.flows.text import Text
from msgplatform.core.lazy_text import translate_text
from msgplatform.core.secrets import encryption
from msgplatform.doors.admin.base import ModelAdmin
from msgplatform.doors.admin.confirmation import confirmed
from msgplatform.person_limits import answers_limited_people

log = logging.get(__name__)

R = TypeVar("R")


def show_page(
    model_admin: Any, request: HttpRequest, template: str, title: Text, **context: Any
) -> TemplateResponse:
    """The page in the console's frame. No cache keeps it: it may show a message's content."""
    frame = {
        **model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.opts,
    }  # fmt: skip
    if request.path in {link.address for flow in flows.all() for link in flow.links}:
        # A page that stands in the menu goes by its own name, and not by that of a model's list.
        frame |= {"opts": None, "content_title": title}
    if row := context.get("row"):
        # The row's name is masked for everybody, because the browser keeps the names of tabs.
        frame["row_name"] = personal.mask_sentence(str(row))
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
        text = (sentences or {}).get(type(error)) or translate_text(error.args[0])
        form.add_error(field if field in form.fields else None, str(text))
        return None


_KEY = "shown_once"
# Seconds for which a secret is kept if its page is never opened, such as after the browser closed.
KEPT_SECONDS = 300


class SecretPageAdmin(ModelAdmin):
    """An admin that creates secrets with its rows: its response is `self.show_secret(...)`.

    Until the page with the secret is opened, the secret is encrypted in the session, which is kept
    on the server; it is never in a cookie, a message or the URL.
    """

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.secret_view)
        return [path("secret/", view, name=self._secret_view_name()), *super().get_urls()]

    def _secret_view_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_secret"

    def show_secret(
        self, request: HttpRequest, title: str, text: str, secret: str, next_url: str,
        command: str = "", form_key: str = "",
    ) -> HttpResponse:  # fmt: skip
        """Redirect to the page with the secret. `text` says what to do with it, `next_url` is
        the page to go to afterwards; `command` is the first one with the secret, `{secret}`.
        `form_key` is for `show_secret_of`."""
        request.session[_KEY] = {
            "title": title, "text": text, "secret": encryption.encrypt(secret), "back": next_url,
            "until": time.time() + KEPT_SECONDS, "command": command, "form_key": form_key,
        }  # fmt: skip
        return redirect(f"{self.admin_site.name}:{self._secret_view_name()}")

    def show_secret_of(self, request: HttpRequest, form_key: str) -> HttpResponse | None:
        """Redirect to the secret that the same form, sent before, has made. None if the secret was
        shown."""
        # Read anew, for this request may have read its session before the secret was stored there;
        # and kept, for this session may be stored too.
        entry = type(request.session)(request.session.session_key).get(_KEY)
        if not entry or entry.get("form_key") != form_key:
            return None
        request.session[_KEY] = entry
        return redirect(f"{self.admin_site.name}:{self._secret_view_name()}")

    @confirmed  # a secret that is made before the proof may never be seen
    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return super().add_view(request, *args, **kwargs)

    @answers_limited_people  # the secret comes from the person's own form
    @confirmed
    def secret_view(self, request: HttpRequest) -> HttpResponse:
        entry: dict[str, Any] | None = request.session.pop(_KEY, None)
        secret = ""
        if entry and entry["until"] >= time.time():
            with suppress(Undecryptable):  # the encryption key was removed meanwhile
                secret = encryption.decrypt(entry["secret"])
        if not secret:
            text = _("The secret was shown already, or was not fetched in time; it is not kept.")
            messages.info(request, text)
            return redirect(
                f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist"
            )
        context = {**(entry or {}), "secret": secret}
        context["command"] = context["command"].replace("{secret}", secret)
        return show_page(self, request, "admin/secret.html", **context)
