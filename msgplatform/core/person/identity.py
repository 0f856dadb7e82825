"""The identifiers of a person (phone numbers, e-mail addresses, ids of users and leads), and their
places in texts.

Phone numbers are compared without signs and without the prefix of China: +86 138-0013-8000, 0086
13800138000 and 138 0013 8000 are one. Numbers and addresses are recognised in any text; ids of
users and leads only in fields for such ids, because 1001 may be anything.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.utils.translation import gettext as _

from msgplatform.core import personal
from msgplatform.core.characters import fold, phone_number
from msgplatform.core.errors import InvalidInput
from msgplatform.core.person import spellings
from msgplatform.core.personal import MARK

MAX_IDENTIFIERS = 50  # of each kind
MIN_PHONE_DIGITS, MAX_PHONE_DIGITS = 7, 15
_MAX_ID_DIGITS = 19
_MAX_WHOLE_NUMBER = 10**18  # no number of a phone is as large
# Shorter numbers are order numbers or prices in many texts. A shorter number is the person's only
# if it is the whole value of a field.
MIN_DIGITS_IN_TEXT = 10
_CARRIER_LENGTHS = (16, 17)  # a mobile number, or one with the trunk's 0, after a prefix
KINDS = ("phones", "emails", "users", "leads")
_EMAIL = re.compile(r"[^\s@<>\"'(),:;]{1,64}@[\w.-]+\.\w+")
_NEVER = r"(?!)"
# A point ends a sentence only before a blank, because addresses and numbers have points, too.
_SENTENCE = re.compile(r"[\u3002\uff01\uff1f!?;\uff1b\n]+|\.\s+")


def phone_digits(text: str) -> str:
    """The digits of a phone number for comparison; '' for a text that is no number."""
    digits = phone_number(text).removeprefix("+").removeprefix("00")
    # A Chinese number has 10 or 11 digits after the country's; a trunk's 0 is only dialled inside.
    if digits.startswith("86") and 12 <= len(digits) <= 14:
        digits = digits[2:]
    if len(digits) in _CARRIER_LENGTHS and digits.startswith(spellings.CARRIERS):
        digits = digits[5:]
    return digits.lstrip("0")


def text_of(value: Any) -> str:
    """The text of a JSON text or whole number, '' for other values. Spreadsheets write a whole
    number with a point: 13800138000.0."""
    if isinstance(value, float | Decimal) and 0 < value < _MAX_WHOLE_NUMBER:
        value = int(value) if value == int(value) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number or isinstance(value, str) else ""


@dataclass(frozen=True)
class Person:
    """The identifiers of one person; a user is a pair (id of the business system, user id)."""

    phones: frozenset[str] = frozenset()
    emails: frozenset[str] = frozenset()
    users: frozenset[tuple[int, str]] = frozenset()
    leads: frozenset[int] = frozenset()
    # The identifiers as entered, for the list of erasures: kind → texts.
    identifiers: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Matches each phone number and e-mail address of the person in a text."""
        parts = [spellings.phone(digits) for digits in sorted(self._phones_in_text)]
        parts += [spellings.email(address) for address in sorted(self.emails)]
        return re.compile("|".join(parts) or _NEVER, re.IGNORECASE)

    @cached_property
    def _phones_in_text(self) -> frozenset[str]:
        return frozenset(digits for digits in self.phones if len(digits) >= MIN_DIGITS_IN_TEXT)

    def may_be_in(self, text: str) -> bool:
        """A quick look: False if no identifier of the person can be in the text, in any field."""
        if spellings.may_be_in(text, self.phones, self.emails):
            return True
        return spellings.with_base64(text, self._erase_plain) != text

    @cached_property
    def phone_spellings(self) -> frozenset[str]:
        """The numbers in all forms of columns with exact numbers: 13800138000, 8613800138000,
        with the trunk's 0 (01012345678, 8601012345678), with a carrier's prefix; those of other
        countries after + or 00."""
        return frozenset(
            prefix + trunk + phone
            for phone in self.phones
            for prefix in ("", "+", "00", "86", "+86", "0086", *spellings.CARRIERS)
            for trunk in ("", "0")
        )

    def is_in(self, text: str) -> bool:
        """True if a phone number or e-mail address of the person stands in the text."""
        return self.erased(text) != text

    def is_in_bytes(self, value: bytes) -> bool:
        """Like `is_in`, for a text in UTF-8."""
        return self.is_in(value.decode(errors="replace"))

    def is_identifier(self, value: Any, is_named: bool = False) -> bool:
        """True if the value is a phone number or an e-mail address of the person, and nothing
        else. A number of few digits counts in a field that is known to hold one (`is_named`)."""
        text = text_of(value)
        address = fold(text).removeprefix("mailto:")
        phones = self.phones if is_named else self._phones_in_text
        return address in self.emails or bool(text and phone_digits(text) in phones)

    def is_owner(self, value: Any, biz_id: int) -> bool:
        """True if a field for personal data of a business system shows that its object is the
        person's: the field is an identifier, and not only a text with an identifier."""
        is_user = (biz_id, text_of(value)) in self.users
        return is_user or self.is_identifier(value, is_named=True)

    def erased(self, text: str) -> str:
        """The text with MARK in the place of each phone number and e-mail address of the person."""
        text = spellings.with_base64(text, self._erase_plain)
        return self._erase_plain(text)

    def _erase_plain(self, text: str) -> str:
        if not (text and spellings.may_be_in(text, self.phones, self.emails)):
            return text
        return self._pattern.sub(
            lambda match: MARK if spellings.is_whole(match, self._phones_in_text) else match[0],
            text,
        )

    def mention(self, text: str) -> str:
        """The sentences of a text that mention the person, with other people's numbers and
        addresses masked; '' if there are none. For an export, because the rest is about others."""
        text = spellings.with_base64(
            text, lambda part: self.mention(part) if self._erase_plain(part) != part else part
        )
        if not self.is_in(text):
            return ""
        sentences = list(filter(self.is_in, _SENTENCE.split(text))) or [text]
        return " … ".join(map(self._without_others, sentences))

    def _without_others(self, sentence: str) -> str:
        parts, end = [], 0
        for match in self._pattern.finditer(sentence):
            if not spellings.is_whole(match, self._phones_in_text):
                continue
            parts += [personal.mask_sentence(sentence[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*parts, personal.mask_sentence(sentence[end:])])

    def mentions(self, value: Any) -> Any:
        """Like `mention`, for each text of a JSON value, without texts that do not mention the
        person."""
        if isinstance(value, Mapping):
            mentions = {name: self.mentions(inner) for name, inner in value.items()}
            return {name: mention for name, mention in mentions.items() if mention} | {
                self.mention(str(name)): MARK for name in value if self.is_in(str(name))
            }
        if isinstance(value, list | tuple):
            return list(filter(None, map(self.mentions, value)))
        return self.mention(text_of(value))

    def erased_value(self, value: Any) -> Any:
        """Like `erased`, for each text of a JSON value, and names of fields. A JSON number that is
        a phone number becomes MARK."""
        if isinstance(value, Mapping):
            return {
                self.erased(str(name)): self.erased_value(inner) for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.erased_value(part) for part in value]
        if isinstance(value, str):
            return self.erased(value)
        return MARK if self.is_in(text_of(value)) else value


def clean(identifiers: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The identifiers (kind → texts) in their stored form, without empty texts.

    Raises InvalidInput, naming the kind.
    """
    readers = {"phones": _phone, "emails": _email, "users": _user, "leads": _lead}
    if unknown := set(identifiers) - set(readers):
        raise InvalidInput(_("Use %s.") % ", ".join(KINDS), sorted(unknown)[0])
    clean_identifiers: dict[str, list[str]] = {}
    for kind in KINDS:
        texts = [text for text in map(str.strip, identifiers.get(kind, ())) if text]
        if texts:
            clean_identifiers[kind] = sorted({readers[kind](text) for text in texts})
    if not clean_identifiers:
        text = _("Name the person by a phone number, an e-mail address, a user id or a lead's id.")
        raise InvalidInput(text, "phones")
    for kind, values in clean_identifiers.items():
        if len(values) > MAX_IDENTIFIERS:
            raise InvalidInput(_("Write at most %d.") % MAX_IDENTIFIERS, kind)
    return clean_identifiers


def _phone(text: str) -> str:
    digits = phone_digits(text)
    if not MIN_PHONE_DIGITS <= len(digits) <= MAX_PHONE_DIGITS:
        words = _("%s is no phone number: write 7 to 15 digits, such as 13800138000.")
        raise InvalidInput(words % text[:40], "phones")
    return digits


def _email(text: str) -> str:
    if not _EMAIL.fullmatch(text):
        raise InvalidInput(_("%s is no e-mail address.") % text[:80], "emails")
    return text.lower()


def _user(text: str) -> str:
    system, _slash, uid = text.partition("/")
    if not system.strip() or not uid.strip():
        words = _("%s: write the business system, a slash and its user id, such as shop/1001.")
        raise InvalidInput(words % text[:80], "users")
    return f"{system.strip()}/{uid.strip()}"


def _lead(text: str) -> str:
    # Python refuses to read a number of more than 4,300 digits.
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS
    if not (is_number and 0 < int(text) < 2**63):
        raise InvalidInput(_("%s is no id of a lead.") % text[:40], "leads")
    return str(int(text))
