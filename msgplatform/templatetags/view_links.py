"""A template filter that makes addresses of what flows name as data."""

from __future__ import annotations

from urllib.parse import urlencode

from django import template
from django.urls import reverse

from msgplatform.core.flows import ViewLink

register = template.Library()


@register.filter
def address(link: ViewLink | None) -> str:
    """The address of a page; '' for None."""
    if link is None:
        return ""
    query = f"?{urlencode(link.query)}" if link.query else ""
    return reverse(link.view, args=link.args) + query
