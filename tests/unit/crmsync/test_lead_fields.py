"""Phone numbers as people write them, and the check of the limits."""

from typing import Any

import pytest

from crmsync.checks import rates_are_readable
from crmsync.lead_fields import clean_phone, phone_forms
from msgplatform.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("13800000000", "13800000000"),
        ("138-0000-0000", "13800000000"),
        ("＋８６ 138 0000 0000", "+8613800000000"),
        ("\u202a13800000000\u202c", "13800000000"),
        ("(010) 6512.3456", "01065123456"),
        ("+44 20 7946 0000", "+442079460000"),
        ("1 (212) 555-1234", "12125551234"),
    ],
)
def test_phone_numbers(written: str, stored: str) -> None:
    assert clean_phone(written) == stored


@pytest.mark.parametrize(
    "written",
    ["", "1234", "1380000000", "138000000000", "++8613800000000", "x", "١٢٣٤٥٦٧", "1" * 21],
)
def test_what_is_no_phone_number(written: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        clean_phone(written)
    assert caught.value.field == "phone"


@pytest.mark.parametrize(
    "same",
    [
        ("13800000000", "8613800000000", "+86 138 0000 0000", "0086-138-0000-0000"),
        ("010-12345678", "+86 10 12345678", "0086 10 12345678"),
        ("+44 20 7946 0000", "0044 20 7946 0000", "44 20 7946 0000"),
        ("+1 212 555 1234", "1 (212) 555-1234", "001 212 555 1234"),
    ],
)
def test_a_number_has_the_same_forms_however_it_is_written(same: tuple[str, ...]) -> None:
    stored = {clean_phone(text) for text in same}
    for text in stored:
        assert stored <= set(phone_forms(text))


def test_a_number_of_another_country_is_another_one() -> None:
    assert "+13125551234" not in phone_forms("13125551234")
    assert "8613125551234" not in phone_forms("+1 312 555 1234")


def test_a_limit_that_cannot_be_read(settings: Any) -> None:
    assert rates_are_readable(None) == []
    settings.CRM_RATE_APPKEY = "many"
    (error,) = rates_are_readable(None)
    assert (error.id, error.obj) == ("crmsync.E001", "CRM_RATE_APPKEY")
