"""The landing page at `/l/<appkey>`, and the page that says thank you."""

import re
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from csp.constants import NONE
from csp.decorators import csp_replace
from django.db.utils import DataError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _, ngettext
from django.utils.translation.trans_real import parse_accept_lang_header
from django.views import View
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from crmsync import directory, lead_fields
from crmsync.intake import intake, limits
from crmsync.lead_fields import LeadField
from crmsync.models import LandingPage
from msgplatform.core import logging
from msgplatform.core.data import transactions
from msgplatform.core.errors import UNAVAILABLE, Temporary
from msgplatform.doors.api.access.throttling import client_address

log = logging.get(__name__)

# A field that people do not see and robots fill in.
HONEYPOT = "contact_url"
_CHINESE, _ENGLISH = "zh-hans", "en"
# Bytes for 30 encoded fields of the maximum length.
_MAX_BYTES = 256 * 1024
_FORM_KEY = re.compile(r"[0-9a-f]{32}")


class Row(msgspec.Struct, frozen=True):
    """A field as the template shows it."""

    field: LeadField
    value: str
    error: str


# The pages have no script, and none may run in them.
@method_decorator(csp_replace({"script-src": [NONE]}), name="dispatch")
class PublicPage(View):
    """A page in the language of its landing page; an unknown APPKEY gets a page that says so."""

    http_method_names = ["get", "head", "post"]
    answers_limited_people = True  # it is for everybody

    def dispatch(self, request: HttpRequest, *args: Any, appkey: str, **kwargs: Any) -> Any:
        code = language_of(request)
        try:
            page = directory.page(appkey)
            code = language_of(request, page.language if page else "")
            with translation.override(code):
                if page is None:
                    status = HTTPStatus.NOT_FOUND
                    response: Any = render(request, "crmsync/not_found.html", status=status)
                else:
                    response = super().dispatch(request, *args, page=page, **kwargs)
        except UNAVAILABLE as error:
            log.warning("landing_page_unavailable", appkey=appkey, why=str(error)[:200])
            with translation.override(code):
                # No request and no context processors: these may use the database.
                text = render_to_string("crmsync/unavailable.html")
            response = HttpResponse(text, status=HTTPStatus.SERVICE_UNAVAILABLE)
            response["Retry-After"] = "60"
        response["Content-Language"] = code
        patch_vary_headers(response, ["Accept-Language"])
        # The form holds a key that belongs to one visitor.
        response["Cache-Control"] = "no-store"
        return response


@method_decorator(csrf_exempt, name="dispatch")  # `_store` asks for the token, after the limit
class LandingPageView(PublicPage):
    """The form of a landing page, and the requests that it sends."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        # Check the length before parsing: anybody may send to this address.
        if int(request.META.get("CONTENT_LENGTH") or 0) > _MAX_BYTES:
            return HttpResponse(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, page: LandingPage) -> HttpResponse:
        return self._form(request, page, {}, {})

    def post(self, request: HttpRequest, page: LandingPage) -> HttpResponse:
        response: HttpResponse = self._store(request, page)
        if response.status_code == HTTPStatus.FORBIDDEN:
            # By `csrf_protect`, whose page is written for people of the console.
            problem = _("Nothing was sent yet. Please allow cookies and press the button again.")
            status = HTTPStatus.FORBIDDEN
            response = self._form(request, page, request.POST, {}, problem, status)
        return response

    @method_decorator(csrf_protect)
    def _store(self, request: HttpRequest, page: LandingPage) -> HttpResponse:
        form_values = request.POST
        address = client_address(request)
        if wait := limits.wait_of_address(address):
            return self._too_many(request, page, wait)
        if form_values.get(HONEYPOT):
            # Answer with the form: a browser may have filled the field in for a person.
            log.info("landing_page_honeypot", appkey=page.appkey)
            return self._form(request, page, form_values, {}, _("Please send the form once more."))
        values, errors = lead_fields.clean_all(page.fields, form_values)
        if errors:
            problem = _("Please look at the marked fields.")
            return self._form(request, page, form_values, errors, problem)
        if wait := limits.wait_of_page(page.appkey, address):
            return self._too_many(request, page, wait)
        lead = intake.make_lead(page, values, "", None)
        # The lead's key consists of the form's key and the content. Pressing twice stores one lead,
        # and sending again with a corrected name is no conflict.
        try:
            intake.add(intake.with_public_key(lead, _form_key(form_values))).raise_rejected()
        except (Temporary, OperationalError, InterfaceError) as error:
            # Show the same form again, so that the visitor's values are not lost.
            log.warning("landing_page_unavailable", appkey=page.appkey, why=str(error)[:200])
            problem = _("This did not work just now. Please press the button again.")
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return self._form(request, page, form_values, {}, problem, status)
        except DataError as error:
            problem = str(transactions.refused_value(error))
            return self._form(request, page, form_values, {}, problem, HTTPStatus.BAD_REQUEST)
        thanks = reverse("landing-page-thanks", args=[page.appkey])
        # Redirect: loading the page again must not send the form again.
        return HttpResponseRedirect(thanks, status=HTTPStatus.SEE_OTHER)

    def _too_many(self, request: HttpRequest, page: LandingPage, wait: int) -> HttpResponse:
        text = ngettext(
            "Too many forms have been sent. Please try again in %d second.",
            "Too many forms have been sent. Please try again in %d seconds.",
            wait,
        )  # fmt: skip
        status = HTTPStatus.TOO_MANY_REQUESTS
        response = self._form(request, page, request.POST, {}, text % wait, status)
        response["Retry-After"] = str(wait)
        return response

    def _form(
        self,
        request: HttpRequest,
        page: LandingPage,
        form_values: Mapping[str, Any],
        errors: Mapping[str, str],
        problem: str = "",
        status: int = HTTPStatus.OK,
    ) -> HttpResponse:
        """Show the form with the visitor's values and with its key: it is still the same form."""
        rows = [
            Row(field, form_values.get(field.name, ""), errors.get(field.name, ""))
            for field in page.fields
        ]
        context = {
            "page": page, "rows": rows, "problem": problem, "honeypot": HONEYPOT,
            "form_key": _form_key(form_values),
        }  # fmt: skip
        return render(request, "crmsync/landing_page.html", context, status=status)


class ThanksView(PublicPage):
    """The page after a form was sent: loading it again sends nothing."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, page: LandingPage) -> HttpResponse:
        return render(request, "crmsync/thanks.html", {"page": page})


def language_of(request: HttpRequest, setting: str = "") -> str:
    """The language of a landing page by its `setting`: zh, en, or '' for the visitor's choice."""
    if setting:
        return _CHINESE if setting == "zh" else _ENGLISH
    # The visitor's preferred language comes first.
    for name, _quality in parse_accept_lang_header(request.headers.get("Accept-Language", "")):
        for language, prefix in ((_CHINESE, "zh"), (_ENGLISH, "en")):
            if name.partition("-")[0] == prefix:
                return language
    return _ENGLISH


def _form_key(form_values: Mapping[str, Any]) -> str:
    """The key that was sent with the form, or a new one."""
    key = form_values.get("form_key", "")
    return key if _FORM_KEY.fullmatch(key) else uuid.uuid4().hex
