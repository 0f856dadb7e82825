"""Texts for people, and pages of the console named as data."""

from collections.abc import Mapping, Sequence

import msgspec
from django.utils.functional import Promise

Text = str | Promise  # a string, or a lazy translation


class ViewLink(msgspec.Struct, frozen=True):
    """The page of a view. Programs have no URLs: only the console makes its address
    (`templatetags/pages.py`)."""

    view: str  # name of its URL
    args: Sequence[str | int] = ()
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
