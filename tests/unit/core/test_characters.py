"""Characters that nobody sees, dashes and digits of every kind: one list for all fields."""

import sys
import time
import unicodedata

import pytest

from msgplatform.core import characters
from msgplatform.core.characters import fold, has_controls, is_blank, phone_number, printable

EVERY = [chr(code) for code in range(0x80, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    "category", ["Pd", "Zs", "Cf"], ids=["dashes", "blanks", "invisible marks"]
)
def test_every_character_of_a_class_may_stand_in_a_number(category: str) -> None:
    """Unicode's own classes, not a list of those that somebody has met."""
    missing = [
        f"U+{ord(each):04X}"
        for each in EVERY
        if unicodedata.category(each) == category and phone_number(f"1{each}23") != "123"
    ]
    # Marks of scripts that are seen, and of annotations.
    seen = {
        "U+0600", "U+0601", "U+0602", "U+0603", "U+0604", "U+0605", "U+06DD", "U+070F", "U+0890",
        "U+0891", "U+08E2", "U+FFF9", "U+FFFA", "U+FFFB", "U+110BD", "U+110CD",
    }  # fmt: skip
    left = {each for each in missing if each not in seen and not is_of_hieroglyphs(each)}
    assert left == set()


def is_of_hieroglyphs(code: str) -> bool:
    return "U+13430" <= code <= "U+1343F" or "U+1BCA0" <= code <= "U+1BCA3"


def test_digits_of_every_script() -> None:
    digits = {each for each in EVERY if unicodedata.category(each) == "Nd"}
    assert all(phone_number(f"13{each}") == f"13{unicodedata.decimal(each)}" for each in digits)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+1 312‑555‑1234", "+13125551234"), ("tel:+44 (0)20 7946 0000", "+4402079460000"),
        ("＋８６ １３８", "+86138"), ("\u202a+86\u202c 138", "+86138"), ("138**00", ""), ("", ""),
        ("12a", ""), ("+", ""), ("1+2", ""), ("p:+8613800000000", "+8613800000000"),
    ],
)  # fmt: skip
def test_phone_numbers(text: str, number: str) -> None:
    assert phone_number(text) == number


@pytest.mark.parametrize("text", ["", " ", "\u200b", "\u3164", "\u2800 \ufe0f", "\u00ad\u2060"])
def test_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text}x")


def test_folded() -> None:
    assert fold(" ＴＤ\u200b ") == "td"


@pytest.mark.parametrize(
    "text", [" " * 60_000, "\u0301" * 30_000 + "\u0316" * 30_000], ids=["blanks", "marks"]
)
def test_the_time_grows_with_the_length_of_a_text(text: str) -> None:
    began = time.process_time()
    assert phone_number(f"１3{text}8") == ("138" if text.isspace() else "")
    assert fold(f"Ａ{text}Ｂ").endswith("b")
    assert time.process_time() - began < 1


def test_controls_and_terminals() -> None:
    assert has_controls("a\x1b[31m")
    assert has_controls("a\u202eb")
    assert has_controls("a\x9b")
    assert has_controls("a\nb")
    assert not has_controls("a\nb", has_lines=True)
    assert not has_controls("😀 Laden 北京\u3000x")
    assert printable("a\x1b]0;x\x07\x9b\u202e 北京") == "a\\x1b]0;x\\x07\\x9b\\u202e 北京"
    assert printable("a\nb\x9b", has_lines=True) == "a\nb\\x9b"
    assert printable("a\nb") == "a\\nb"
    assert characters.IGNORABLE.search("\ufeff")
