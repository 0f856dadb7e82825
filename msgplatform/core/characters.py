"""Characters that are invisible, or look like other characters: one list for all fields and
searches.

The classes are Unicode's: Default_Ignorable_Code_Point (DerivedCoreProperties.txt), the general
categories Pd and Zs, Bidi_Control. The punctuation of phone numbers is that of libphonenumber
(`VALID_PUNCTUATION`).
"""

import io
import re
import sys
import unicodedata

from django.utils.translation import gettext_lazy

# Default_Ignorable_Code_Point, and a blank that is no space: the Braille pattern without dots.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_DASHES = (
    "\\-\u058a\u05be\u1400\u1806\u2010-\u2015\u2053\u2212\u223c\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u2e5d"
    "\u301c\u3030\u30a0\u30fc\ufe31\ufe32\ufe58\ufe63\uff0d\uff5e\uff70\U00010d6e\U00010ead"
)
_POINTS = "\u00b7\u2022\u2027\u2043\u2219\u22c5\u30fb\uff65"
# The characters between the digits of phone numbers, as a character class of `re`.
PHONE_PUNCTUATION = (
    rf"\s{_DASHES}{_IGNORABLE}.()\[\]/~{_POINTS}\uff08\uff09\uff0e\uff0f\uff3b\uff3d"
)
IGNORABLE = re.compile(f"[{_IGNORABLE}]")
_PUNCTUATION = re.compile(f"[{PHONE_PUNCTUATION}]+")
# These characters change the direction of the text around them.
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
_PHONE_SCHEMES = re.compile(r"(?:tel|sms|phone|mobile|p):", re.IGNORECASE)
# No letter, digit or blank is a combining mark.
_LONG_RUN = re.compile(r"([^\w\s]{64})")


def is_blank(text: str) -> bool:
    """True if the text has only invisible characters."""
    return not IGNORABLE.sub("", text).strip()


def normalize(text: str) -> str:
    """The text in NFKC. A run of 64 marks or more is cut: Python sorts a run in time that grows
    with the square of its length."""
    return "".join(unicodedata.normalize("NFKC", part) for part in _LONG_RUN.split(text))


def fold(text: str) -> str:
    """The form of a text for comparison with typed text: NFKC, without case and invisible
    characters."""
    return IGNORABLE.sub("", normalize(text)).strip().casefold()


def mixes_alphabets(text: str) -> bool:
    """True if letters of alphabets that look alike stand in one text (UTS #39 §5.1): a Cyrillic а
    among Latin letters is read as theirs."""
    alphabets = {unicodedata.name(char, "").partition(" ")[0] for char in text if char.isalpha()}
    return len(alphabets & _ALPHABETS) > 1


def phone_number(text: str) -> str:
    """A phone number as ASCII digits only, with its leading + if it has one; '' for a text that is
    no number. NFKC makes digits of every width and style ASCII."""
    number = _PHONE_SCHEMES.sub("", normalize(text), count=1)
    number = _PUNCTUATION.sub("", number).replace("\uff0b", "+")
    digits = "".join(
        str(unicodedata.decimal(char)) if char.isdecimal() else char
        for char in number.removeprefix("+")
    )
    if not (digits.isascii() and digits.isdigit()):
        return ""
    return f"+{digits}" if number.startswith("+") else digits


NO_CONTROLS = gettext_lazy(
    "Remove the characters that control a terminal or turn the direction of text."
)


def has_controls(text: str, has_lines: bool = False) -> bool:
    """True if the text has control characters, or characters that change the direction of text.
    With `has_lines` line ends and tabs are allowed."""
    line_ends = "\n\r\t" if has_lines else ""
    return bool(_BIDI.search(text)) or any(
        unicodedata.category(char) == "Cc" and char not in line_ends for char in text
    )


def unify_line_ends(text: str) -> str:
    r"""The text with `\n` as the end of each line; browsers send `\r\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def printable(text: str, has_lines: bool = False) -> str:
    """The text for a terminal, with control and direction characters as escapes. With `has_lines`
    line ends stay."""
    return "".join(
        char
        if char.isprintable() or (char == "\n" and has_lines)
        else char.encode("unicode_escape").decode()
        for char in text
    )


def for_stdout(text: str) -> str:
    """The text for standard output: as it is, in UTF-8, for a file; printable for a terminal."""
    if sys.stdout.isatty():
        return printable(text, has_lines=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return text
