"""Regular expressions for a phone number and an e-mail address in any text, in any spelling.

The same grammar finds, exports and erases. Besides characters between digits it reads encodings of
texts in texts: URLs (`%40`, also twice), JSON in JSON (`\\u0040`), HTML (`&#64;`), digits of other
widths and scripts.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote

from msgplatform.core.characters import IGNORABLE, PHONE_PUNCTUATION

_MAX_BETWEEN = 8  # signs between two digits
# The last character of an escape before a number or an address is no part of the number.
_AFTER_ESCAPE = r"(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\[nrt])"
# Punctuation of numbers in URLs, JSON and HTML.
_ENCODED_PUNCTUATION = (
    r"%(?:25)*(?:20|09|0[aAdD]|2[089bBdDeEfF]|7[eE]|5[bBdD]|[cC]2%(?:25)*[aA][0dD]"
    r"|[eE]2%(?:25)*8[0-1]%(?:25)*[89aAbB][0-9a-fA-F]|[eE]2%(?:25)*88%(?:25)*92"
    r"|[eE]3%(?:25)*80%(?:25)*80|[eE][fF]%(?:25)*[bB][bBcC]%(?:25)*[89bB][0-9a-fA-F])"
    r"|\\+u(?:00[aA][0dD]|00(?:20|2[89bdefBDEF]|09|0[ad])|20[0-6][0-9a-fA-F]|2212|3000|30fc"
    r"|[fF][eE][fF]{2}|[fF]{2}0[89b-fB-F])"
    r"|\\+[nrt/]|&nbsp;|&ensp;|&emsp;|&#0*(?:32|40|41|43|45|46|160);"
)
BETWEEN = rf"(?:[{PHONE_PUNCTUATION}+]|{_ENCODED_PUNCTUATION}){{0,{_MAX_BETWEEN}}}"
_COUNTRY = "86"
_IGNORED = (
    rf"(?:{IGNORABLE.pattern}|%(?:25)*[eE]2%(?:25)*80%(?:25)*8[bB]"
    r"|\\+u(?:200[b-fB-F]|[fF][eE][fF]{2})){0,3}"
)
# The encodings of a text that could hide the digits or letters of an identifier.
_ENCODED = re.compile(r"[%\\&]")
_MAX_ENCODINGS = 3  # JSON in a URL in JSON
_JSON_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_NO_DIGITS = re.compile(r"[^0-9]+")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")


def phone(digits: str) -> str:
    """Matches the number, with or without a prefix of calls abroad, China's country code or a
    trunk's zero."""
    prefixes = ("00", _COUNTRY, "0")
    country = "".join(f"(?:{BETWEEN.join(map(_digit, p))}{BETWEEN})?" for p in prefixes)
    # A plus before the number is a part of the number.
    return (
        rf"(?:(?<!\d)|{_AFTER_ESCAPE})(?:(?:\+|\uff0b|%(?:25)*2[bB])?{country})"
        rf"{BETWEEN.join(map(_digit, digits))}(?!\d)"
    )


def email(address: str) -> str:
    """Matches the address; letters in either case."""
    return (
        rf"(?:(?<![A-Za-z0-9_.+-])|{_AFTER_ESCAPE}){_IGNORED.join(map(_character, address))}"
        r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
    )


def may_be_in(text: str, phones: frozenset[str], emails: frozenset[str]) -> bool:
    """A quick look: False if no identifier can be in the text, in any spelling."""
    for _ in range(1 + _MAX_ENCODINGS):
        plain = text.lower() if text.isascii() else _fold(text)
        digits = _NO_DIGITS.sub("", plain)
        if any(phone in digits for phone in phones) or any(mail in plain for mail in emails):
            return True
        if not _ENCODED.search(text) or (plain_text := _decode(text)) == text:
            return False
        text = plain_text
    return True


def _fold(text: str) -> str:
    text = IGNORABLE.sub("", unicodedata.normalize("NFKC", text)).lower()
    return text if text.isascii() else _OTHER_DIGIT.sub(lambda m: str(int(m[0])), text)


def _decode(text: str) -> str:
    """The text without one level of the encodings of URLs, JSON and HTML."""
    text = _JSON_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    # A character beyond U+FFFF is two escapes.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return html.unescape(unquote(text.replace("\\n", " ").replace("\\t", " ")))


def is_price(match: str) -> bool:
    """True for digits with a point and nothing else: 1391112.2233 is an amount."""
    return match.count(".") == 1 and match.replace(".", "").isdigit()


@lru_cache(maxsize=1)
def _digits() -> tuple[str, ...]:
    """Value of a digit → the digits of all scripts, widths and styles (General_Category Nd)."""
    texts = [""] * 10
    for code in range(0x80, 0x1FC00):
        value = unicodedata.digit(chr(code), None)
        if value is not None:
            texts[value] += chr(code)
    return tuple(texts)


@lru_cache(maxsize=16)
def _digit(digit: str) -> str:
    """Matches the digit in any script, as it is and as JSON, URLs and HTML encode it."""
    characters = _digits()[int(digit)]
    in_json = "|".join(map(_json_units, characters))
    in_url = "|".join(map(_url_bytes, characters))
    in_html = "|".join(f"0*{code}|x0*{code:x}" for code in map(ord, characters))
    return (
        rf"(?:[{digit}{characters}]|%(?:25)*(?:3{digit}|{in_url})|\\+u(?:003{digit}|{in_json})"
        rf"|&#(?:0*{48 + int(digit)}|x0*3{digit}|{in_html});)"
    )


def _url_bytes(character: str) -> str:
    """The bytes of a character, as URLs write them behind a first `%`."""
    return "%(?:25)*".join(f"{byte:02x}" for byte in character.encode())


def _json_units(character: str) -> str:
    """The UTF-16 code units of a character, as JSON writes them behind a first `\\u`."""
    units = character.encode("utf-16-be").hex()
    return r"\\+u".join(units[n : n + 4] for n in range(0, len(units), 4))


@lru_cache(maxsize=512)
def _character(character: str) -> str:
    code = ord(character)
    if code > 0x7E:  # of a domain in another script
        code_text = "".join(f"%{byte:02x}" for byte in character.encode())
        return rf"(?:{re.escape(character)}|{code_text}|\\+u{code:04x})"
    # The full-width form of an ASCII character.
    return (
        rf"(?:{re.escape(character)}|{chr(code + 0xFEE0)}|%(?:25)*{code:02x}|\\+u00{code:02x}"
        rf"|\\+uff{code - 0x20:02x}|&#0*{code};|&#x0*{code:x};)"
    )
