"""The pages of django-allauth that the console has, under names that the library knows. Its
sign-up, its password reset and its e-mail pages are not among them."""

from __future__ import annotations

from allauth.account.views import reauthenticate
from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="admin:login", query_string=True),
         name="account_login"),
    path("password", reauthenticate, name="account_reauthenticate"),
]  # fmt: skip
