"""The language of a landing page: its own, else the visitor's."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation.trans_real import parse_accept_lang_header

CHINESE, ENGLISH = "zh-hans", "en"


def of_page(request: HttpRequest, setting: str = "") -> str:
    """`setting` is what the landing page says: zh, en, or '' for what the browser prefers."""
    if setting:
        return CHINESE if setting == "zh" else ENGLISH
    # In the order of the visitor's preference.
    for wanted, _quality in parse_accept_lang_header(request.headers.get("Accept-Language", "")):
        for language, prefix in ((CHINESE, "zh"), (ENGLISH, "en")):
            if wanted.partition("-")[0] == prefix:
                return language
    return ENGLISH
