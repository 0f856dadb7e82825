"""Lists in forms: one item a line."""

from typing import Any

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator

from msgplatform.doors.admin.fields import JsonField, LinesField, item_check

DIGITS = RegexValidator(r"^[0-9]+\Z", "digits only")


class Repeated(LinesField):
    may_repeat = True


def test_items_are_stripped_and_there_once() -> None:
    assert LinesField(check=DIGITS).clean(" 1\r\n2\r\n\r\n1 ") == ["1", "2"]
    assert Repeated(check=DIGITS).clean("1\n2\n1") == ["1", "2", "1"]
    assert LinesField(check=DIGITS).clean("") == []


def test_every_wrong_line_is_named() -> None:
    with pytest.raises(ValidationError) as caught:
        LinesField(check=DIGITS).clean("x\n\n1\ny")
    assert caught.value.messages == ["Line 1: digits only", "Line 4: digits only"]


@pytest.mark.parametrize(("line", "messages"), [("1\n", 1), ("\n", 1), ("!\n", 20)])
def test_a_text_of_a_million_lines_is_refused_early(line: str, messages: int) -> None:
    checked_items: list[str] = []

    def check(item: str) -> None:
        checked_items.append(item)
        DIGITS(item)

    with pytest.raises(ValidationError) as caught:
        LinesField(check=check).clean(line * 1_000_000)
    assert len(caught.value.messages) == messages
    assert len(checked_items) <= 2000


def test_a_list_s_validator_checks_an_item() -> None:
    seen: list[Any] = []
    assert LinesField(check=item_check(seen.append)).clean("1\n2") == ["1", "2"]
    assert seen == [["1"], ["2"]]


def test_a_character_that_no_database_takes() -> None:
    with pytest.raises(ValidationError, match="Null"):
        LinesField(check=lambda item: None).clean("a\x00b")


@pytest.mark.parametrize(
    ("initial", "data", "changed"),
    [
        (["1", "2"], "1\r\n2\r\n\r\n1", False),
        (None, "", False),
        ([], "", False),
        (["1"], "2", True),
        (["1"], "", True),
        (["1"], "x", True),
    ],
)
def test_what_counts_as_changed(initial: Any, data: str, changed: bool) -> None:
    assert LinesField(check=DIGITS).has_changed(initial, data) == changed


def test_what_is_stored_is_shown_line_by_line() -> None:
    assert LinesField(check=DIGITS).prepare_value(["1", "2"]) == "1\n2"
    assert LinesField(check=DIGITS).prepare_value("x\ny") == "x\ny", "what was typed stays"


@pytest.mark.parametrize("value", ["hello", "123", "true", 123, {"a": ["一"]}, None])
def test_a_stored_value_is_the_same_when_its_form_is_sent(value: Any) -> None:
    class Example(forms.Form):
        example = JsonField()

    shown = Example(initial={"example": value})["example"].value()
    sent = Example({"example": shown or ""}, initial={"example": value})
    assert sent.is_valid()
    assert sent.cleaned_data["example"] == value
    assert not sent.has_changed()
    wrong = Example({"example": "{"})
    assert not wrong.is_valid()
    assert wrong["example"].value() == "{"
