"""A person who reads Chinese, and a catalogue that has every text that is said (`core/said.py`)."""

import pytest
from django.utils import translation

CHINESE = {"Accept-Language": "zh-hans"}


def translate_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Chinese each text begins with 译, whatever the catalogue has at present."""

    def gettext(message: str) -> str:
        return f"译 {message}" if translation.get_language() == "zh-hans" else message

    monkeypatch.setattr("msgplatform.core.lazy_text.gettext", gettext)
