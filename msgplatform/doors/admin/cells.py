"""Cells of lists: coloured marks, second lines, links, numbers and times as text."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.flows.text import Text

NOTHING = mark_safe('<span class="nothing">–</span>')


def mark(text: str, tone: str, title: str = "", below: str = "") -> SafeString:
    """A coloured label; `tone` is good, warn, bad or plain. `title` is its tooltip, `below` a
    second line in small letters."""
    label = format_html('<span class="mark {}" title="{}">{}</span>', tone, title, text)
    return lines(label, below)


def nothing(text: str) -> SafeString:
    """A value without importance. Narrow screens hide it."""
    return format_html('<span class="nothing">{}</span>', text)


def unknown() -> SafeString:
    """The mark of a value that cannot be read while Redis is unavailable."""
    return mark(gettext("unknown"), "warn")


def enabled(is_on: bool) -> SafeString:
    return mark(gettext("enabled"), "good") if is_on else mark(gettext("switched off"), "plain")


def column(
    title: Text, value: Callable[[Any], Any], ordering: str | None = None
) -> Callable[[Any, Any], Any]:
    """A column of a list, as an attribute of its admin. `value` makes the cell of a row; `ordering`
    is the database's column by which people may sort."""

    @admin.display(description=title, ordering=ordering)  # type: ignore[arg-type]  # a lazy text
    def cell(_admin: Any, row: Any) -> Any:
        return value(row)

    return cell


@admin.display(description=_("state"), ordering="enabled")
def state(row: Any) -> SafeString:
    """The column of a list whose rows can be switched off."""
    return enabled(row.enabled)


def lines(first: str, below: str) -> SafeString:
    """Two lines, the second in small letters. One line if both texts are equal."""
    if not below or below.casefold() == first.casefold():
        return conditional_escape(first)
    return format_html(
        '<span class="lines">{} <small class="why" title="{}">{}</small></span>',
        first, below, below,
    )  # fmt: skip


def message_link(flow: str, message: int | str) -> SafeString:
    """The message's id, linked to its page in the console."""
    return link(reverse("console:message", args=[flow, str(message)]), message)


def link(url: str, text: int | str) -> SafeString:
    """A link in the theme's style of lists."""
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, text
    )


def moment(when: datetime | None) -> str:
    """A time in the reader's time zone, to the minute."""
    return formats.date_format(timezone.localtime(when), "Y-m-d H:i") if when else ""


def percent(share: float | None) -> str:
    """Rounded down, so that only a complete share shows 100 %."""
    return NOTHING if share is None else f"{int(share * 1000) / 10:g} %"


def per_second(limit: float | None) -> str:
    """A rate limit. 0 and None mean no limit and show a dash."""
    return gettext("%g/s") % limit if limit else NOTHING


def cut(text: str, max_length: int = 60) -> str:
    return text if len(text) <= max_length else f"{text[:max_length]}…"
