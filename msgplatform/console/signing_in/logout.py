"""Logging out, here and at the company's provider."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST


@require_POST
@never_cache
def log_out(request: HttpRequest) -> HttpResponse:
    """The theme's page; from a session of the provider the way there, by a page of ours: the
    browser lets no form lead to another site."""
    url = _address(request)
    if not url:
        return admin.site.logout(request)
    logout(request)
    context = {**admin.site.each_context(request), "site_url": "", "continue_url": url}
    return render(request, "console/signing_out.html", context)


def _address(request: HttpRequest) -> str:
    if not settings.OIDC_ISSUER:
        return ""
    from msgplatform.console.signing_in.provider import logout as there

    return there.address(request)
