"""A page that the bench asks for."""

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.utils import timezone


class Page(NamedTuple):
    """`name` is the same in every database. A page of the console is asked for by a signed-in
    administrator, one of the API with its `token`."""

    name: str
    address: str
    token: str = ""


def address(path: str, **query: Any) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def local(moment: datetime) -> str:
    """As people write a time into a form."""
    return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M")
