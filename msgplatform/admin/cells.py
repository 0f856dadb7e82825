"""Cells of lists: a mark that is read at a glance, plain text for the rest."""

from __future__ import annotations

from datetime import datetime

from django.urls import reverse
from django.utils import formats, timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

NOTHING = mark_safe('<span class="nothing">–</span>')


def mark(text: str, tone: str, title: str = "", below: str = "") -> SafeString:
    """A coloured label; `tone` is good, warn, bad or plain. `title` is shown when it is pointed
    at, `below` under it, in small letters."""
    label = format_html('<span class="mark {}" title="{}">{}</span>', tone, title, text)
    return _above(label, below) if below else label


def nothing(text: str) -> SafeString:
    """A value that need not be looked at; narrow screens leave it out."""
    return format_html('<span class="nothing">{}</span>', text)


def unknown() -> SafeString:
    """For what only Redis knows, while it is unavailable."""
    return mark(gettext("unknown"), "warn")


def enabled(is_on: bool) -> SafeString:
    return mark(gettext("enabled"), "good") if is_on else mark(gettext("switched off"), "plain")


def lines(first: str, below: str) -> SafeString:
    """A second line in small letters; none when it says the same."""
    same = below.casefold() == first.casefold()
    return _above(first, below) if below and not same else escape(first)


def _above(first: str, below: str) -> SafeString:
    return format_html(
        '<span class="lines">{} <small class="why" title="{}">{}</small></span>',
        first, below, below,
    )  # fmt: skip


def message_link(flow: str, message: int | str) -> SafeString:
    """The message's id, leading to its page in the console."""
    url = reverse("console:message", args=[flow, str(message)])
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, message
    )


def moment(when: datetime | None) -> str:
    """In the platform's time zone, to the minute."""
    return formats.date_format(timezone.localtime(when), "Y-m-d H:i") if when else ""


def percent(share: float | None) -> str:
    """Rounded down: what is not all of it must not read as 100 %."""
    return NOTHING if share is None else f"{int(share * 1000) / 10:g} %"


def per_second(limit: float | None) -> str:
    """A rate limit; 0 or None is none."""
    return gettext("%g/s") % limit if limit else NOTHING


def cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
