"""Cells of the lists."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from gateway.models import SgipMt

NOTHING = mark_safe('<span class="nothing">–</span>')
_Final = SgipMt.Final
TONES: dict[str, str] = {
    _Final.DELIVERED: "good", _Final.ACCEPTED: "plain", _Final.EXPIRED: "warn",
    _Final.UNKNOWN: "warn", _Final.FAILED: "bad",
}  # fmt: skip
_SHOWN = 60


def mark(text: str, tone: str, title: str = "") -> SafeString:
    """A coloured label; `tone` is good, warn, bad or plain."""
    return format_html('<span class="mark {}" title="{}">{}</span>', tone, title, text)


def story(message: int) -> SafeString:
    """The message's id, leading to its page in the console."""
    url = reverse("console:message", args=["sms", str(message)])
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, message
    )


def cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
