"""Phone numbers as people write them, and the check of the limits."""

from __future__ import annotations

from typing import Any

import pytest

from crmsync.checks import rates_are_readable
from crmsync.lead_fields import clean_phone
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


def test_a_limit_that_cannot_be_read(settings: Any) -> None:
    assert rates_are_readable(None) == []
    settings.CRM_RATE_APPKEY = "many"
    (error,) = rates_are_readable(None)
    assert (error.id, error.obj) == ("crmsync.E001", "CRM_RATE_APPKEY")
