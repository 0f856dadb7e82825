"""The pages of signing in, below `/console/sign-in/` or under Django's addresses, by names that
django-allauth knows. Its sign-up, its password reset and its e-mail pages are not among them."""

from allauth.account.views import reauthenticate
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from msgplatform.company.signing_in.pages import log_in, log_in_by_link, log_out
from msgplatform.company.signing_in.passwords import change_password
from msgplatform.person_limits import answers_limited_people as to_all

_OWN = "console/sign-in/"
urlpatterns: list[URLPattern | URLResolver] = [
    path(
        _OWN,
        RedirectView.as_view(pattern_name="admin:login", query_string=True),
        name="account_login",
    ),
    path(f"{_OWN}out", log_out, name="account_logout"),
    path(f"{_OWN}password", reauthenticate, name="account_reauthenticate"),
    path(f"{_OWN}second-factor/", include("allauth.mfa.urls")),
    path(f"{_OWN}link", log_in_by_link, name="login-link"),
    path("admin/login/", to_all(log_in)),
    path("admin/logout/", to_all(log_out)),
    # Django's own page at this address would not slow down guesses.
    path("admin/password_change/", change_password),
]
