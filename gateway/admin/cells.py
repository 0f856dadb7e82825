"""Cells of the lists."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

from gateway import sgip
from gateway.models import SgipMt

NOTHING = mark_safe('<span class="nothing">–</span>')
_Final = SgipMt.Final
TONES: dict[str, str] = {
    _Final.DELIVERED: "good", _Final.ACCEPTED: "plain", _Final.EXPIRED: "warn",
    _Final.UNKNOWN: "warn", _Final.FAILED: "bad",
}  # fmt: skip
_SHOWN = 60


def mark(text: str, tone: str, title: str = "", below: str = "") -> SafeString:
    """A coloured label; `tone` is good, warn, bad or plain. `below` says more, in small letters."""
    label = format_html('<span class="mark {}" title="{}">{}</span>', tone, title, text)
    return _above(label, below) if below else label


def unknown() -> SafeString:
    """For what only Redis knows, while it is away."""
    return mark(gettext("unknown"), "warn")


def lines(first: str, below: str) -> SafeString:
    """A second line in small letters; none when it says the same."""
    same = below.casefold() == first.casefold()
    return _above(first, below) if below and not same else escape(first)


def _above(first: str, below: str) -> SafeString:
    return format_html(
        '<span class="lines">{} <small class="why" title="{}">{}</small></span>',
        first, below, below,
    )  # fmt: skip


def story(message: int) -> SafeString:
    """The message's id, leading to its page in the console."""
    url = reverse("console:message", args=["sms", str(message)])
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, message
    )


def meaning(code: int) -> str:
    """Of a Result or ErrorCode."""
    text = sgip.result_text(code)
    return text if text != str(code) else gettext("a code of the gateway's own")


def coded(code: int) -> str:
    """With its meaning, '' for none."""
    return f"{code} {meaning(code)}" if code else ""


def cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
