"""Logging out, here and at the company's provider."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

_provider_addresses: list[Callable[[HttpRequest], str]] = []


def register_provider(address: Callable[[HttpRequest], str]) -> None:
    """Have people who log out led on to this address of a provider; "" for sessions that did not
    begin there."""
    _provider_addresses.append(address)


@require_POST
@never_cache
def log_out(request: HttpRequest) -> HttpResponse:
    """The theme's page; from a session of the provider the way there, by a page of ours: the
    browser lets no form lead to another site."""
    url = next(filter(None, (address(request) for address in _provider_addresses)), "")
    if not url:
        return admin.site.logout(request)
    logout(request)
    context = {**admin.site.each_context(request), "site_url": "", "continue_url": url}
    return render(request, "console/signing_out.html", context)
