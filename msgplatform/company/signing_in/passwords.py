"""The pages on which people set a password: the first user by the link that `up` prints, and
everybody their own, by Django's page with our form."""

from typing import Any

from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.views import PasswordChangeView, PasswordResetConfirmView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse, reverse_lazy
from django.utils.translation import gettext_lazy as _
from unfold.widgets import INPUT_CLASSES

from msgplatform.company.signing_in.login import OwnPasswordForm
from msgplatform.company.signing_in.second_factor import has_factor
from msgplatform.doors.admin.auditing import SECRET, audit
from msgplatform.models import AuditLog
from msgplatform.person_limits import answers_limited_people


class ChoosePasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # generic for mypy only
    """Django's form with the theme's inputs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = " ".join(INPUT_CLASSES)


class ChoosePasswordView(PasswordResetConfirmView):
    """Django's view for a link with a token, which ends when a password is chosen or
    PASSWORD_RESET_TIMEOUT is over. Afterwards the user is logged in.

    The token is a query parameter, because logs have the path of a request and not its query.
    """

    template_name = "console/choose_password.html"
    form_class = ChoosePasswordForm
    success_url = reverse_lazy("console:overview")
    answers_limited_people = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # Without a token in the address the view uses the one that it has stored in the session, so
        # that the token leaves the address with the first answer.
        token = request.GET.get("token", self.reset_url_token)
        return super().dispatch(request, *args, **kwargs, token=token)

    def get_user(self, uidb64: str) -> Any:
        """None for a disabled account, and without local passwords, so that the link does not
        work."""
        user = super().get_user(uidb64) if settings.LOCAL_PASSWORDS else None
        return user if user is not None and user.is_active else None

    def form_valid(self, form: Any) -> HttpResponse:
        """A second factor, if the user has one, is asked for as at each login; others who were
        invited set one up next, or later."""
        name, changes = form.user.get_username(), {"password": [SECRET, SECRET]}
        with transaction.atomic():
            super().form_valid(form)
            AuditLog.record(name, "own_password_changed", name, changes=changes)
        is_asked = not (form.user.is_superuser or has_factor(form.user))
        page = reverse("mfa_index") if is_asked else self.get_success_url()
        answer: HttpResponse = perform_login(self.request, form.user, redirect_url=page)
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        title = _("Choose a password") if self.validlink else _("This link no longer works")
        frame = {**admin.site.each_context(self.request), "site_url": ""}  # no page would open
        return {**frame, **context, "title": title}


class _PasswordChange(PasswordChangeView):
    form_class = OwnPasswordForm
    success_url = reverse_lazy("admin:password_change_done")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**admin.site.each_context(self.request), **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            changes = {"password": [SECRET, SECRET]}
            audit(self.request, "own_password_changed", form.user.get_username(), changes=changes)
            return super().form_valid(form)


@answers_limited_people
def change_password(request: HttpRequest) -> HttpResponseBase:
    return admin.site.admin_view(_PasswordChange.as_view(), cacheable=True)(request)
