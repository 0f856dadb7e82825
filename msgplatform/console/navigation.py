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
from msgplatform.console.views.page import visible
from msgplatform.core import flows, outbound, personal

# Material symbols of the platform's models; a flow has those of its own, others get a general one.
_ICONS = {
    "Alert": "notifications",
    "ApiKey": "key",
    "AuditLog": "history",
    "Biz": "apartment",
    "BulkJob": "playlist_play",
    "Group": "group",
    "MinuteCounter": "pin",
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
    able = any(user.has_perm(flow.permission) for flow in flows.all() if flow.activity)
    may_see_queues = user.has_perms(["msgplatform.view_queues", personal.PERMISSION])
    may_start = user.has_perm("msgplatform.add_bulkjob") and any(
        flow.is_bulk_allowed(user) for flow in flows.all()
    )
    return {
        "title": _("Console"),
        "items": [
            {
                **_item(_("Overview"), "monitoring", reverse("console:overview")),
                **_status(request),
                # Every address of the console begins with this one.
                "active": request.path == reverse("console:overview"),
            },
            *_failures(request),
            _item(_("Search"), "search", reverse("console:search")),
            *([_item(_("Statistics"), "bar_chart", reverse("console:statistics"))] if able else []),
            *([_item(_("Bulk jobs"), "replay", reverse("console:bulk"))] if may_start else []),
            *([_item(_("Queues"), "stacks", reverse("django_rq:home"))] if may_see_queues else []),
            _item(_("Getting started"), "rocket_launch", reverse("console:getting-started")),
            _item(_("API documentation"), "description", reverse("api-docs")),
        ],
    }


def _status(request: HttpRequest) -> dict[str, str]:
    """What every page says: green only when nothing is known to be wrong."""
    found = condition.of(request)
    if found.number:
        text = ngettext("%d problem", "%d problems", found.number) % found.number
        return {"badge": text, "badge_variant": "danger"}
    if found.acknowledged:
        text = _("%d acknowledged") % found.acknowledged
        return {"badge": text, "badge_variant": "warning"}
    return {"badge": _("OK"), "badge_variant": "success"}


def environment(request: HttpRequest) -> list[str] | None:
    """What the head of every page says while nothing may leave the platform."""
    return [_("Outbound is off"), "warning"] if outbound.is_off() else None


def _failures(request: HttpRequest) -> list[dict[str, Any]]:
    """The page Failures, with how many groups of messages were given up."""
    if not visible(request):
        return []
    item = _item(_("Failures"), "heart_broken", reverse("console:failures"))
    number = condition.failures(request)
    return [{**item, "badge": str(number), "badge_variant": "danger"} if number else item]


def stylesheet(request: HttpRequest) -> str:
    """Our own style sheet, for every page of the console."""
    return static("console/console.css")


def theme_stylesheet(request: HttpRequest) -> str:
    """What the theme leaves out, for every page."""
    return static("console/theme.css")


def session_script(request: HttpRequest) -> str:
    """Says so when a part of a page cannot be fetched because the session has ended."""
    return static("console/session.js")


def accessible_script(request: HttpRequest) -> str:
    """Names what the theme leaves unnamed, for people who listen to a page."""
    return static("console/accessible.js")


def account(request: HttpRequest) -> list[dict[str, Any]]:
    """The links of the user's menu."""
    user: Any = request.user
    if not user.is_authenticated:  # the theme asks for the login page too
        return []
    links = [{"title": _("Preferences"), "link": reverse("console:preferences")}]
    if user.has_usable_password():
        links.append({"title": _("Change password"), "link": reverse("admin:password_change")})
    return links


def favicon(request: HttpRequest) -> str:
    """Our own icon for the browser's tab."""
    return static("console/favicon.svg")


def _item(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}
