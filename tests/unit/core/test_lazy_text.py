"""Texts that are stored once and read in several languages."""

import json

import pytest
from django.utils import translation
from django.utils.translation import gettext_lazy

from msgplatform.core import lazy_text
from msgplatform.core.lazy_text import LazyMessage, dump, lazy_message, load, translate_stored

FAILING = "The subscription %(name)s is failing"
CHINESE = "zh-hans"


def read(text: str, language: str) -> str:
    """Through the database, by somebody of this language."""
    kept = json.loads(json.dumps(dump(text)))
    with translation.override(language):
        return str(translate_stored(kept))


def test_it_is_in_the_language_of_the_settings_whoever_makes_it() -> None:
    with translation.override(CHINESE):
        text = lazy_message(FAILING, name="shop → till")
    assert text == "The subscription shop → till is failing"
    assert isinstance(text, str)


def test_each_reads_it_in_his_own_language() -> None:
    text = lazy_message(FAILING, name="shop → till")
    assert read(text, "en") == text
    chinese = read(text, CHINESE)
    assert "shop → till" in chinese
    assert "subscription" not in chinese


def test_what_stands_in_it_is_translated_too() -> None:
    late = "%(flow)s: %(what)s has waited for more than %(minutes)s minutes"
    text = lazy_message(
        late,
        flow=gettext_lazy("Feed"),
        what=lazy_message("A message that was accepted"),
        minutes="5",
    )
    assert text == "Feed: A message that was accepted has waited for more than 5 minutes"
    chinese = read(text, CHINESE)
    assert chinese.startswith("动态")
    assert "5" in chinese
    assert "message" not in chinese


def test_a_stored_text_is_a_parameter_of_another_text() -> None:
    inner = lazy_message(FAILING, name="shop → till")
    kept = json.loads(json.dumps(dump(inner)))
    outer = lazy_message("%(flow)s: %(what)s has waited for more than %(minutes)s minutes",
                flow="A", what=load(kept), minutes=5)  # fmt: skip
    assert inner in outer
    assert "subscription" not in read(outer, CHINESE)
    assert load("no code knows it") == "no code knows it"
    with translation.override(CHINESE):
        assert lazy_text.translate_text(inner) == read(inner, CHINESE)
        assert lazy_text.translate_text("as it is") == "as it is"


@pytest.mark.parametrize("text", ["100 % full", "%(name)s", "", "错误"])
def test_what_nobody_can_translate_stays(text: str) -> None:
    assert read(text, CHINESE) == text
    assert read(lazy_message(FAILING, name=text), "en") == f"The subscription {text} is failing"


def test_a_message_without_parameters_may_hold_anything() -> None:
    assert lazy_message("100 % of them") == "100 % of them"
    assert isinstance(lazy_message("100 % of them"), LazyMessage)
