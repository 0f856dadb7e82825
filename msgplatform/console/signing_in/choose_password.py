"""The page where a one-time password is replaced by one that its user chooses."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _
from unfold.widgets import INPUT_CLASSES

from msgplatform.console.signing_in.one_time_password import must_choose


class ChoosePasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # generic for mypy only
    """Without the old password: its user has just logged in with it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = " ".join(INPUT_CLASSES)


class ChoosePasswordView(PasswordChangeView):
    template_name = "console/choose_password.html"
    form_class = ChoosePasswordForm  # type: ignore[assignment]  # it needs a user, as theirs does
    success_url = reverse_lazy("console:overview")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # Any other change of a password asks for the old one.
        if request.user.is_authenticated and not must_choose(request):
            return redirect("console:overview")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        frame = {**admin.site.each_context(self.request), "site_url": ""}  # nothing opens there
        return {**frame, **context, "title": _("Choose a password")}
