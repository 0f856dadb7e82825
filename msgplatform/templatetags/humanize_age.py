"""Template filters that write ages with one unit."""

from __future__ import annotations

import time

from django import template

from msgplatform.core import ages

register = template.Library()
register.filter(ages.age)


@register.filter
def since(moment: float) -> str:
    """The age of a unix time."""
    return ages.age(max(0.0, time.time() - moment))
