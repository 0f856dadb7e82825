"""Every address of the platform. Daemons serve no HTTP and never import this module."""

from collections.abc import Callable

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.http import HttpResponseBase
from django.shortcuts import redirect
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView

from msgplatform.core import features, flows
from msgplatform.doors.api import health
from msgplatform.doors.api.problems import error_pages
from msgplatform.doors.api.schema_document import SchemaView
from msgplatform.doors.console.views import api_docs
from msgplatform.doors.web import queue_pages
from msgplatform.person_limits import answers_limited_people as to_all


def limit_to_staff(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A view of documentation, or of clients; for staff unless API_DOCS_PUBLIC is set."""
    return view if settings.API_DOCS_PUBLIC else staff_member_required(view)


handler400 = error_pages.bad_request
handler403 = error_pages.permission_denied
handler404 = error_pages.not_found
handler500 = error_pages.server_error

urlpatterns: list[URLPattern | URLResolver] = [
    path("", to_all(RedirectView.as_view(pattern_name="console:overview")), name="home"),
    # Browsers request this address for pages without an icon of their own, such as JSON.
    path("favicon.ico", to_all(lambda _: redirect(static("console/favicon.svg"))), name="favicon"),
    # Addresses of features come before pages of the same addresses.
    *features.gather("root_urls", "urlpatterns"),
    path("console/", include("msgplatform.doors.console.urls")),
    path("admin/", admin.site.urls),
    path("django-rq/", include((queue_pages.urls(), "django_rq"))),
    path("api/v1/", include("msgplatform.doors.api.management.urls")),
    *(path("api/v1/", include(flow.urls)) for flow in flows.all() if flow.urls),
    *(path("", include(flow.root_urls)) for flow in flows.all() if flow.root_urls),
    path("api/schema/", limit_to_staff(SchemaView.as_view()), name="api-schema"),
    path("api/docs/", limit_to_staff(api_docs.api_docs), name="api-docs"),
    path("api/docs", to_all(RedirectView.as_view(pattern_name="api-docs"))),
    path("docs/", limit_to_staff(api_docs.documentation), name="documentation"),
    path("docs/<path:name>", limit_to_staff(api_docs.documentation)),
    path("clients/", limit_to_staff(api_docs.clients), name="clients"),
    path("clients/<str:name>", limit_to_staff(api_docs.client_package), name="client-package"),
    re_path(r"^api/", to_all(error_pages.unknown_api_address)),
    path("problems/", to_all(error_pages.catalogue), name="problems"),
    path("problems/<slug:slug>", to_all(error_pages.catalogue), name="problem"),
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", health.prometheus, name="metrics"),
]
