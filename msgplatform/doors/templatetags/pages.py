"""Template filters and tags of pages: addresses of what flows name as data, links for people who
may follow them, JSON, commands."""

from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import format_html

from msgplatform import person_limits
from msgplatform.core.flows.page import Call, PageLink, Value
from msgplatform.core.flows.text import ViewLink
from msgplatform.core.json import text as json_text

register = template.Library()
# Links to the platform's pages are not shown to people who see only some business systems.
register.filter(person_limits.is_limited)

SHOWN = 16 * 1024  # characters of a shown content; the whole can be downloaded


@register.filter
def address(link: ViewLink | None) -> str:
    """The address of a page; '' for None."""
    if link is None:
        return ""
    query = f"?{urlencode(link.query)}" if link.query else ""
    return reverse(link.view, args=link.args) + query


@register.simple_tag(takes_context=True)
def linked(context: dict[str, Any], value: Value) -> str:
    """A value; a link if it is one and the user may follow it."""
    if not isinstance(value, PageLink):
        return value
    if not value.url or not _has_permissions(context, value.permission):
        return value.text
    if not person_limits.may_open(context["request"], value.url):
        return value.text
    return format_html('<a href="{}">{}</a>', value.url, value.text)


@register.simple_tag(takes_context=True)
def command(context: dict[str, Any], call: Call | None) -> str:
    """The curl command of a call; '' for users who may not see it."""
    if call is None or not _has_permissions(context, call.permission):
        return ""
    request = context["request"]
    return call.command(request.build_absolute_uri("/").rstrip("/"))


@register.filter
def readable(text: str) -> str:
    """The beginning of a content: JSON is indented."""
    return json_text.pretty(text, SHOWN)


def _has_permissions(context: dict[str, Any], permission: str) -> bool:
    return bool(context["request"].user.has_perms(permission.split()))
