"""Regular expressions for a phone number and an e-mail address in any text, in any spelling.

The same grammar finds, exports and erases. Besides characters between digits it reads encodings of
texts in texts: URLs (`%40`, also twice), JSON in JSON (`\\u0040`), HTML (`&#64;`, `&ndash;`, tags),
quoted-printable (`=40`), base64, digits of other widths and scripts, and Chinese ones.
"""

import base64
import binascii
import html
import html.entities
import re
import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache
from urllib.parse import unquote

from msgplatform.core.characters import IGNORABLE, PHONE_PUNCTUATION, normalize

_MAX_BETWEEN = 8  # signs between two digits
# Encodings of one character, whatever it is: the bytes of URLs (also twice), of quoted-printable
# and of texts of programs (`\xe2`); the escapes of JSON and JavaScript; HTML.
_URL_BYTE = r"[%=](?:25)*"
# A match begins at the first backslash of a run. A search that began again at each of them would
# take time that grows with the square of their number.
_BACKSLASHES = r"(?<!\\)\\+"
_BYTE = rf"(?:{_URL_BYTE}|{_BACKSLASHES}x)"
_UNIT = rf"(?:{_BACKSLASHES}|(?<!\\)(?:\\|%(?:25)*5c){{1,15}}|%(?:25)*)u"
_HTML = r"&(?:amp;)*"
_ENCODED_SIGN = (
    rf"{_BYTE}(?!3\d)[0-7][0-9a-f]|{_BYTE}[c-f][0-9a-f](?:{_BYTE}[89ab][0-9a-f]){{1,3}}"
    rf"|{_UNIT}(?:\{{[0-9a-f]{{1,6}}\}}|(?:0{{4}})?(?!003\d)[0-9a-f]{{4}})"
    rf"|{_HTML}(?:#(?!0*(?:4[89]|5[0-7]);)\d{{1,7}}|#x(?!0*3\d;)[0-9a-f]{{1,6}}|[a-z]{{2,31}});"
)
# The last character of an escape before a number or an address is no part of the number.
_AFTER_ESCAPE = r"(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\[nrtfv])"
_TAG = r"</?[a-z][^<>]{0,80}>"
# People write these too between the digits in a text; no door takes them.
_OTHER_SIGNS = "+_*|'\u2018\u2019\uff3f\uff07\u2500\u2501\u20e3"
BETWEEN = (
    rf"(?:[{PHONE_PUNCTUATION}{_OTHER_SIGNS}]|{_ENCODED_SIGN}|\\+[nrtfv/]|=\r?\n|{_TAG})"
    rf"{{0,{_MAX_BETWEEN}}}"
)
_COUNTRY = "86"
# Prefixes that choose a carrier for a call or text, and stand in address books with the number:
# China Mobile's 17951, 12593 and 12520, China Unicom's 17911 and 10193, China Telecom's 17909,
# 17908, 17901 and 11808.
CARRIERS = ("17951", "12593", "12520", "17911", "10193", "17909", "17908", "17901", "11808")
_AFTER_CARRIER = re.compile(rf"(?<!\d)(?:{'|'.join(CARRIERS)})$")
_IGNORED = (
    rf"(?:{IGNORABLE.pattern}|%(?:25)*[eE]2%(?:25)*80%(?:25)*8[bB]"
    r"|\\+u(?:200[b-fB-F]|[fF][eE][fF]{2})){0,3}"
)
# The encodings of a text that could hide the digits or letters of an identifier.
_ENCODED = re.compile(r"[%\\&<]")
_MAX_ENCODINGS = 3  # JSON in a URL in JSON
_UNITS = re.compile(
    rf"(?:{_BACKSLASHES}|%)u(?:\{{0*([0-9a-f]{{1,5}})\}}|(?:0{{4}})?([0-9a-f]{{4}}))", re.IGNORECASE
)
_BYTES = re.compile(rf"{_BACKSLASHES}x(?=[0-9a-f]{{2}})", re.IGNORECASE)
_TAGS = re.compile(_TAG, re.IGNORECASE)
_REFERENCE = re.compile(r"&#0*([0-9]+)")
# In URLs `=13` is no byte, so quoted-printable is tried by itself.
_QUOTED = re.compile(r"=(?:([0-9A-Fa-f]{2})|\r?\n)")
_NO_DIGITS = re.compile(r"[^0-9]+")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
# Chinese digits, those of sums included, and one as it is said in a number.
_CHINESE = ("〇零", "一壹幺", "二贰貳", "三叁參", "四肆", "五伍", "六陆陸", "七柒", "八捌", "九玖")
_OF_CHINESE = {ord(char): str(n) for n, characters in enumerate(_CHINESE) for char in characters}
_MAX_ESCAPE = 12  # characters
# Base64, of URLs too, of at least nine bytes.
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{12,}={0,2}(?![A-Za-z0-9+/_=-])")


def phone(digits: str) -> str:
    """Matches the number, with or without a prefix of calls abroad, China's country code or a
    trunk's zero."""
    prefixes = "".join(
        f"(?:{BETWEEN.join(map(_digit, prefix))}{BETWEEN})?" for prefix in ("00", _COUNTRY, "0")
    )
    # A plus before the number is a part of the number.
    return (
        rf"(?:(?<!\d)|(?<={'|'.join(CARRIERS)})|{_AFTER_ESCAPE})"
        rf"(?:(?:\+|\uff0b|%(?:25)*2[bB])?{prefixes})"
        rf"{BETWEEN.join(map(_digit, digits))}(?!\d)"
    )


def email(address: str) -> str:
    """Matches the address; letters in either case."""
    return (
        rf"(?:(?<![A-Za-z0-9_.+-])|{_AFTER_ESCAPE}){_IGNORED.join(map(_character, address))}"
        r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
    )


def is_whole(match: re.Match[str], phones: Collection[str]) -> bool:
    """True unless the match is an amount, or a part of a number of which more digits are
    encoded."""
    if is_price(match[0]):
        return False
    number = _plain(_unquote_printable(match[0]))
    if "@" in number:
        return True
    digits = _NO_DIGITS.sub("", number).lstrip("0")
    text, (start, end) = match.string, match.span()
    text_before = _plain(text[max(0, start - _MAX_ESCAPE) : start])
    text_after = _plain(text[end : end + _MAX_ESCAPE])
    is_number = digits in phones or digits.removeprefix(_COUNTRY).lstrip("0") in phones
    is_begun = text_before[-1:].isdigit() and not _AFTER_CARRIER.search(text_before)
    return is_number and not (is_begun or text_after[:1].isdigit())


def may_be_in(text: str, phones: frozenset[str], emails: frozenset[str]) -> bool:
    """A quick look: False if no identifier can be in the text, in any spelling but base64."""
    texts = [text]
    if _QUOTED.search(text):
        texts.append(_unquote_printable(text))
    for plain_text in texts:
        for _ in range(1 + _MAX_ENCODINGS):
            folded_text = plain_text.lower() if plain_text.isascii() else _fold(plain_text)
            digits = _NO_DIGITS.sub("", folded_text)
            if any(number in digits for number in phones):
                return True
            if any(address in folded_text for address in emails):
                return True
            if not _ENCODED.search(plain_text):
                break
            encoded_text, plain_text = plain_text, _decode(plain_text)
            if plain_text == encoded_text:
                break
    return False


def with_base64(text: str, change: Callable[[str], str]) -> str:
    """The text with each part in base64, as far as that is UTF-8, changed within."""

    def renew(match: re.Match[str]) -> str:
        part = match[0].rstrip("=")
        other_characters = b"-_" if "-" in part or "_" in part else None  # those of URLs
        try:
            content = base64.b64decode(
                part + "=" * (-len(part) % 4), other_characters, validate=True
            ).decode()
        except (binascii.Error, UnicodeDecodeError):
            return match[0]
        if (new_content := change(content)) == content:
            return match[0]
        new_part = base64.b64encode(new_content.encode(), other_characters).decode()
        is_padded = match[0].endswith("=") or len(part) % 4 == 0
        return new_part if is_padded else new_part.rstrip("=")

    return _BASE64.sub(renew, text)


def _plain(text: str) -> str:
    """A short text without any encoding."""
    for _ in range(1 + _MAX_ENCODINGS):
        text = _decode(text)
    return _fold(text)


def _fold(text: str) -> str:
    text = IGNORABLE.sub("", normalize(text)).lower().translate(_OF_CHINESE)
    return text if text.isascii() else _OTHER_DIGIT.sub(lambda m: str(int(m[0])), text)


def _unquote_printable(text: str) -> str:
    """A text in quoted-printable, with its bytes as URLs write them."""
    return _QUOTED.sub(lambda match: f"%{match[1]}" if match[1] else "", text)


def _decode(text: str) -> str:
    """The text without one level of the encodings of URLs, JSON and HTML."""
    text = _UNITS.sub(lambda match: chr(min(int(match[1] or match[2], 16), 0xFFFF)), text)
    # A character beyond U+FFFF is two escapes.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _BYTES.sub("%", _TAGS.sub("", text))
    text = unquote(text.replace("\\n", " ").replace("\\t", " "))
    # Python reads no number of more than 4,300 digits. The number of a character has seven at most.
    return html.unescape(_REFERENCE.sub(lambda match: f"&#{match[1][:8]}", text))


def is_price(match: str) -> bool:
    """True for digits with a point and nothing else: 1391112.2233 is an amount."""
    return match.count(".") == 1 and match.replace(".", "").isdigit()


@lru_cache(maxsize=1)
def _digits() -> tuple[str, ...]:
    """Value of a digit → the digits of all scripts, widths and styles (General_Category Nd), and
    Chinese ones."""
    texts = list(_CHINESE)
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
        rf"(?:[{digit}{characters}]|{_BYTE}3{digit}|{_URL_BYTE}(?:{in_url})"
        rf"|{_UNIT}(?:(?:0{{4}})?003{digit}|\{{0*3{digit}\}}|{in_json})"
        rf"|{_HTML}#(?:0*{48 + int(digit)}|x0*3{digit}|{in_html});)"
    )


def _url_bytes(character: str) -> str:
    """The bytes of a character, as URLs write them behind a first `%`."""
    return _URL_BYTE.join(f"{byte:02x}" for byte in character.encode())


def _json_units(character: str) -> str:
    """The UTF-16 code units of a character, as JSON writes them behind a first `\\u`."""
    units = character.encode("utf-16-be").hex()
    return r"\\+u".join(units[n : n + 4] for n in range(0, len(units), 4))


@lru_cache(maxsize=512)
def _character(character: str) -> str:
    """Matches the character of an address, as it is and as JSON, URLs and HTML encode it."""
    code = ord(character)
    if code > 0x7E:  # of a domain in another script
        in_url = "".join(f"%{byte:02x}" for byte in character.encode())
        return rf"(?:{re.escape(character)}|{in_url}|{_BACKSLASHES}u{code:04x})"
    names = "".join(
        f"|{re.escape(name)}"
        for name, text in html.entities.html5.items()
        if text == character and name.endswith(";")
    )
    # The full-width form of an ASCII character, too.
    return (
        rf"(?:{re.escape(character)}|{chr(code + 0xFEE0)}|{_BYTE}{code:02x}"
        rf"|{_UNIT}(?:(?:0{{4}})?00{code:02x}|\{{0*{code:x}\}}|ff{code - 0x20:02x})"
        rf"|{_HTML}(?:#0*{code};|#x0*{code:x};{names}))"
    )
