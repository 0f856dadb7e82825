"""People change their own password here; Django's page, with our form."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse_lazy

from msgplatform.admin.auditing import SECRET, audit
from msgplatform.console.signing_in.login import OwnPasswordForm


class _PasswordChange(PasswordChangeView):
    form_class = OwnPasswordForm
    success_url = reverse_lazy("admin:password_change_done")

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**admin.site.each_context(self.request), **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            changes = {"password": [SECRET, SECRET]}
            audit(self.request, "own_password_changed", form.user.get_username(), changes=changes)
            return super().form_valid(form)


def change(request: HttpRequest) -> HttpResponseBase:
    return admin.site.admin_view(_PasswordChange.as_view(), cacheable=True)(request)
