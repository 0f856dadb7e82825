"""The console's side bar: the console's pages, the models of each app, the queues."""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from msgplatform import person_limits
from msgplatform.core import cells, features, flows, outbound, personal
from msgplatform.doors.console import condition
from msgplatform.doors.console.views import api_docs, page as pages, retention

# Material symbols of the platform's models; a flow has those of its own, others get a general one.
_ICONS = {
    "Alert": "notifications",
    "AlertMessage": "outgoing_mail",
    "AlertChannel": "campaign",
    "AlertRule": "rule",
    "ApiKey": "key",
    "AuditLog": "history",
    "Biz": "apartment",
    "Group": "group",
    "User": "person",
}

# Apps in the order of the menu, in every language; others follow by name.
_ORDER = ("notify", "gateway", "feed", "crmsync", "msgplatform", "auth")


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    groups = [_console_group(request)]
    icons = _ICONS | {model: icon for flow in flows.all() for model, icon in flow.icons.items()}
    order = {model: place for place, model in enumerate(icons)}
    for app in sorted(_apps(request), key=_place):
        label = app["app_label"]
        app_flows = [flow for flow in flows.all() if flow.permission.startswith(f"{label}.")]
        models = sorted(
            app["models"], key=lambda model: order.get(model["object_name"], len(order))
        )
        items = [
            _item(model["name"], icons.get(model["object_name"], "table_rows"), model["admin_url"])
            for model in models
            # Bulk jobs have a page of the console.
            if model["admin_url"] and model["object_name"] != "BulkJob"
        ]
        links = [
            _item(str(link.title), link.icon, link.address)
            for flow in app_flows
            for link in flow.links
            if request.user.has_perms(link.permissions)
        ]
        # A link's page may lie below a model's address; then only the link is marked as active.
        if any(request.path.startswith(link["link"]) for link in links):
            items = [{**item, "active": False} for item in items]
        title = _("People") if label == "auth" else app["name"]
        if label == "msgplatform":  # and its pages about the data of all flows
            if retention.may_open(request):
                items.append(_item(_("Retention"), "auto_delete", reverse("console:retention")))
            items += [
                _item(str(entry.title), entry.icon, reverse(entry.view))
                for entry in features.gather("console_urls", "menu")
                if entry.may_open(request)
            ]
        group = {"title": title, "separator": True, "items": [*items, *links]}
        # People who use one flow do not scroll past the others.
        is_unused = app_flows and not any(map(pages.is_set_up, app_flows))
        groups.append(group | {"collapsible": True} if is_unused else group)
    # The page for people who know how the platform works inside.
    if request.user.has_perms(["msgplatform.view_queues", personal.PERMISSION]):
        items = [_item(_("Queues"), "stacks", reverse("django_rq:home"))]
        title = _("Internals")
        groups.append({"title": title, "separator": True, "collapsible": True, "items": items})
    if person_limits.is_limited(request):
        for group in groups:
            group["items"] = [
                item for item in group["items"] if person_limits.may_open(request, item["link"])
            ]
    return [group for group in groups if group["items"]]


def _apps(request: HttpRequest) -> list[dict[str, Any]]:
    """The admin's apps, with the console's list of messages for a flow whose model has no admin."""
    # The frame of the page has the same list: an entry of it is replaced, and none is changed.
    apps_by_label = {app["app_label"]: app for app in admin.site.get_app_list(request)}
    for flow in pages.visible(request):
        model, label = pages.model_of(flow), flow.permission.partition(".")[0]
        if not flow.messages.fields or admin.site.is_registered(model):
            continue
        name = apps.get_app_config(label).verbose_name
        app = apps_by_label.get(label, {"app_label": label, "name": name, "models": []})
        messages = {
            "name": pages.list_name(flow),
            "object_name": model.__name__,
            "admin_url": reverse("console:find", args=[flow.name]),
        }
        apps_by_label[label] = {**app, "models": [*app["models"], messages]}
    return list(apps_by_label.values())


def _place(app: dict[str, Any]) -> tuple[int, str]:
    label = app["app_label"]
    return (_ORDER.index(label) if label in _ORDER else len(_ORDER), str(app["name"]))


def _console_group(request: HttpRequest) -> dict[str, Any]:
    # The status is on every page. It is green only when no problem is known.
    state, status = condition.of_request(request), {}
    if state.problem_count:
        text = ngettext("%d problem", "%d problems", state.problem_count) % state.problem_count
        status = {"badge": text, "badge_variant": "danger"}
    elif not person_limits.is_limited(request):  # limited people: failures are not counted
        text, variant = _("OK"), "success"
        if state.acknowledged:
            text, variant = _("%d acknowledged") % state.acknowledged, "warning"
        status = {"badge": text, "badge_variant": variant}
    items = [
        {
            **_item(_("Overview"), "monitoring", reverse("console:overview")),
            **status,
            # Compare the whole path: every address of the console begins with this one.
            "active": request.path == reverse("console:overview"),
        }
    ]
    if pages.visible(request):
        failures = _item(_("Failures"), "heart_broken", reverse("console:failures"))
        # No count for limited people: it would take several statements for each flow.
        if not person_limits.is_limited(request) and (count := condition.count_failures(request)):
            failures |= {"badge": str(count), "badge_variant": "danger"}
        items.append(failures)
    items.append({
        **_item(_("Search"), "search", reverse("console:search")),
        # Compare the whole path: addresses of the flows' lists begin with this one.
        "active": request.path == reverse("console:search"),
    })  # fmt: skip
    if any(flow.health.activity for flow in pages.visible(request)):
        items.append(_item(_("Statistics"), "bar_chart", reverse("console:statistics")))
    if any(pages.can_start_jobs(request.user, flow) for flow in flows.all()):
        items.append(_item(_("Bulk jobs"), "replay", reverse("console:bulk")))
    elif request.user.has_perm("msgplatform.view_bulkjob"):  # people who may only look
        address = reverse("admin:msgplatform_bulkjob_changelist")
        items.append(_item(_("Bulk jobs"), "replay", address))
    items += [
        _item(_("Getting started"), "rocket_launch", reverse("console:getting-started")),
        _item(_("API documentation"), "description", reverse("api-docs")),
    ]
    if api_docs.has_documentation():
        items.append(_item(_("Documentation"), "menu_book", reverse("documentation")))
    return {"title": _("Console"), "items": items}


def environment(request: HttpRequest) -> list[str] | None:
    """The mark in the head of every page: the cell, and that nothing may leave the platform."""
    cell, is_off = cells.own(), outbound.is_off()
    marks = [] if cell.is_only else [_("Cell %s") % cell]
    if is_off:
        marks.append(_("Outbound is off"))
    return [" · ".join(marks), "warning" if is_off else "info"] if marks else None


def account(request: HttpRequest) -> list[dict[str, Any]]:
    user: Any = request.user
    if not user.is_authenticated:  # the theme asks for the login page too
        return []
    links = [
        {"title": _("Preferences"), "link": reverse("console:preferences")},
        {"title": _("Second factor"), "link": reverse("mfa_index")},
        {"title": _("Your sessions"), "link": reverse("console:sessions")},
    ]
    if settings.LOCAL_PASSWORDS and user.has_usable_password():
        links.append({"title": _("Change password"), "link": reverse("admin:password_change")})
    return links


def _item(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}
