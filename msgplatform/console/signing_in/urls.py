"""The pages of django-allauth that the console has, under names that the library knows. Its
sign-up, its password reset and its e-mail pages are not among them."""

from __future__ import annotations

from allauth.account.views import reauthenticate
from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from msgplatform.person_limits import answers_limited_people

urlpatterns: list[URLPattern | URLResolver] = [
    path("", answers_limited_people(RedirectView.as_view(
        pattern_name="admin:login", query_string=True
    )), name="account_login"),
    path("password", reauthenticate, name="account_reauthenticate"),
]  # fmt: skip
