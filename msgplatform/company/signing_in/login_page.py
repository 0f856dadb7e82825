"""The login of the console: the theme's page, then what follows a right password (`django-allauth`:
a second factor, if the person has one)."""

from __future__ import annotations

from typing import Any

from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from msgplatform.company.signing_in.login import LoginForm


class _LoginView(LoginView):
    template_name = "console/login.html"
    authentication_form = LoginForm

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = perform_login(
            self.request, form.get_user(), redirect_url=self.get_success_url()
        )
        return answer

    def get_default_redirect_url(self) -> str:
        return reverse("console:overview")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        frame = {
            **admin.site.each_context(self.request),
            "title": _("Log in"),
            "subtitle": None,
            "app_path": self.request.get_full_path(),
            "username": self.request.user.get_username(),
            "has_passwords": settings.LOCAL_PASSWORDS,
            "providers": {
                id: options["APPS"][0]["name"]
                for id, options in settings.SOCIALACCOUNT_PROVIDERS.items()
            },
            "next_page": self.get_redirect_url(),
        }
        return {**super().get_context_data(**kwargs), **frame}


@never_cache
def log_in(request: HttpRequest) -> HttpResponseBase:
    """Django's own view does the same for people who are signed in."""
    if request.method == "GET" and admin.site.has_permission(request):
        return redirect("admin:index")
    return _LoginView.as_view()(request)
