"""A template filter that writes large numbers so that they can be read."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import formats

register = template.Library()


@register.filter
def grouped(value: Any) -> Any:
    """`1234567` → `1,234,567`, as the language has it; what is no whole number stays."""
    return formats.number_format(value, force_grouping=True) if type(value) is int else value
