"""Telephone numbers as SGIP writes them: with 86 in front, without a plus."""

from __future__ import annotations

_COUNTRY = "86"
_MOBILE = 11  # digits of a mobile number, the first of which is 1


def international(number: str) -> str:
    """`86` and the number; what is no Chinese mobile number keeps its digits as they are."""
    digits = _digits(number)
    return _COUNTRY + digits if _is_mobile(digits) else digits


def national(number: str) -> str:
    """A mobile number without `86`, as people write it, and as Reports and MOs are matched."""
    digits = _digits(number)
    rest = digits.removeprefix(_COUNTRY)
    return rest if _is_mobile(rest) else digits


def _digits(number: str) -> str:
    digits = number.strip().replace(" ", "").replace("-", "")
    return digits.removeprefix("+").removeprefix("00")


def _is_mobile(digits: str) -> bool:
    return len(digits) == _MOBILE and digits.startswith("1")
