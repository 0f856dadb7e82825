"""Template filters and tags that write times, ages and large numbers for people."""

import time
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from msgplatform.core import durations

register = template.Library()
register.filter(durations.age)


@register.filter
def since(moment: float) -> str:
    """The age of a unix time."""
    return durations.age(max(0.0, time.time() - moment))


@register.filter
def grouped(value: Any) -> Any:
    """`1234567` → `1,234,567`, in the language's form; other values than whole numbers stay."""
    return formats.number_format(value, force_grouping=True) if type(value) is int else value


@register.filter
def moment(when: datetime | None, form: str = "Y-m-d H:i:s") -> SafeString | str:
    """`2026-11-23 11:23:20 UTC+8`, with the ISO text as its tooltip; a dash for None."""
    if not when:
        return "–"
    local = timezone.localtime(when)
    return format_html(
        '<time datetime="{}" title="{}">{} <small class="zone">{}</small></time>',
        local.isoformat(), local.isoformat(timespec="milliseconds"),
        formats.date_format(local, form), offset(local),
    )  # fmt: skip


@register.simple_tag
def zone() -> str:
    """The zone of all times on this page: `Asia/Shanghai, UTC+8`."""
    name, offset_now = timezone.get_current_timezone_name(), offset(timezone.localtime())
    return offset_now if name == offset_now else f"{timezone.get_current_timezone()}, {offset_now}"


def offset(local: datetime) -> str:
    """`UTC+8`, `UTC−3:30`, `UTC`: unambiguous, unlike abbreviations such as CST."""
    utc_offset = local.utcoffset() or timedelta(0)
    if abs(utc_offset) < timedelta(minutes=1):  # local mean times of old have seconds
        return "UTC"
    hours, minutes = divmod(int(abs(utc_offset).total_seconds()) // 60, 60)
    sign = "+" if utc_offset > timedelta(0) else "−"
    return f"UTC{sign}{hours}:{minutes:02d}" if minutes else f"UTC{sign}{hours}"
