"""The admin site: unfold's, which lists the apps once for a page."""

from typing import Any

from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from unfold.sites import UnfoldAdminSite


class Config(AdminConfig):
    """In INSTALLED_APPS in place of Django's own."""

    default_site = "msgplatform.doors.admin_site.Site"


class Site(UnfoldAdminSite):  # type: ignore[misc]  # it has no types
    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """The frame of a page and its side bar both ask for it, which took a sixth of many pages:
        permissions, addresses and names of thirty models."""
        if app_label:
            return list(super().get_app_list(request, app_label))
        if not hasattr(request, "app_list"):
            request.app_list = super().get_app_list(request)  # type: ignore[attr-defined]
        return list(request.app_list)  # type: ignore[attr-defined]
