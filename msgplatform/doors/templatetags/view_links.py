"""A template filter that makes addresses of what flows name as data."""

from urllib.parse import urlencode

from django import template
from django.http import HttpRequest
from django.urls import reverse

from msgplatform import person_limits
from msgplatform.core.flows.text import ViewLink

register = template.Library()


@register.filter
def address(link: ViewLink | None) -> str:
    """The address of a page; '' for None."""
    if link is None:
        return ""
    query = f"?{urlencode(link.query)}" if link.query else ""
    return reverse(link.view, args=link.args) + query


@register.filter
def is_limited(request: HttpRequest) -> bool:
    """True if the person sees only some business systems: links to the platform's pages are not
    shown."""
    return person_limits.is_limited(request)
