"""The console's side bar: our own pages, then every app's models, then the queues."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from msgplatform.console import condition
from msgplatform.core import flows

# Material symbols of the platform's models; a flow has those of its own, others get a general one.
_ICONS = {
    "Alert": "notifications",
    "ApiKey": "key",
    "AuditLog": "history",
    "Biz": "apartment",
    "BulkJob": "playlist_play",
    "Group": "group",
    "MinuteCounter": "bar_chart",
    "User": "person",
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Unfold's navigation structure for this user."""
    user: Any = request.user
    groups = [_pages(request)]
    icons = {
        **_ICONS,
        **{model: icon for flow in flows.all() for model, icon in flow.icons.items()},
    }
    order = {model: place for place, model in enumerate(icons)}
    for app in admin.site.get_app_list(request):
        models = sorted(
            app["models"], key=lambda model: order.get(model["object_name"], len(order))
        )
        items = [
            _item(model["name"], icons.get(model["object_name"], "table_rows"), model["admin_url"])
            for model in models
            if model["admin_url"]
        ]
        links = [
            _item(str(link.title), link.icon, reverse(link.view))
            for flow in flows.all()
            for link in flow.links
            if flow.permission.startswith(f"{app['app_label']}.")
            and user.has_perms(link.permissions)
        ]
        # A link's page may lie below a model's address; then only the link is marked as active.
        if any(request.path == link["link"] for link in links):
            items = [{**item, "active": False} for item in items]
        groups.append({"title": app["name"], "separator": True, "items": [*items, *links]})
    return groups


def _pages(request: HttpRequest) -> dict[str, Any]:
    """The group of the console's own pages."""
    user: Any = request.user
    may_empty = user.is_active and user.is_superuser
    may_start = user.has_perm("msgplatform.add_bulkjob") and any(
        flow.bulk_actions and user.has_perm(flow.permission) for flow in flows.all()
    )
    return {
        "title": _("Console"),
        "items": [
            {
                **_item(_("Overview"), "monitoring", reverse("console:overview")),
                **_status(),
                # Every address of the console begins with this one.
                "active": request.path == reverse("console:overview"),
            },
            _item(_("Search"), "search", reverse("console:search")),
            *([_item(_("Bulk jobs"), "replay", reverse("console:bulk"))] if may_start else []),
            *([_item(_("Queues"), "stacks", reverse("django_rq:home"))] if may_empty else []),
            _item(_("API documentation"), "description", reverse("api-docs")),
        ],
    }


def _status() -> dict[str, str]:
    """What every page says: green only when nothing is known to be wrong."""
    number = condition.look().number
    if not number:
        return {"badge": _("OK"), "badge_variant": "success"}
    text = ngettext("%d problem", "%d problems", number) % number
    return {"badge": text, "badge_variant": "danger"}


def stylesheet(request: HttpRequest) -> str:
    """Our own style sheet, for every page of the console."""
    return static("console/console.css")


def favicon(request: HttpRequest) -> str:
    """Our own icon for the browser's tab."""
    return static("console/favicon.svg")


def _item(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}
