"""Template filters that write ages with one unit."""

from __future__ import annotations

import time

from django import template

from msgplatform.core import durations

register = template.Library()
register.filter(durations.age)


@register.filter
def since(moment: float) -> str:
    """The age of a unix time."""
    return durations.age(max(0.0, time.time() - moment))
