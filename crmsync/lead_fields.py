"""The fields of a lead: the questions of a landing page, and the check of the answers.

A landing page keeps its fields as JSON, `[{"name": "phone", "required": true, "label": ""}, …]`.
`name` and `phone` are columns of a lead, everything else goes into its `extra`.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.core.characters import has_controls, is_blank, phone_number
from msgplatform.core.errors import InvalidInput
from msgplatform.core.person.identity import phone_digits

COLUMNS = ("name", "phone")
MAX_FIELDS = 30
MAX_LABEL = 100
MAX_UID = 64
# Names that a form or the API sends in addition to the fields; see `hive/pages.py`.
RESERVED = frozenset(
    {"appkey", "contact_url", "csrfmiddlewaretoken", "extra", "form_key", "id", "uid", "version"}
)
MAX_DIGITS = 15  # digits that a double keeps
_TOO_LARGE = 10**MAX_DIGITS
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PHONE = re.compile(r"\+?[0-9]{5,20}")
_CHINESE_MOBILE = re.compile(r"1[3-9][0-9]{9}")


class FieldType(msgspec.Struct, frozen=True):
    """The label of a field, its length, and the value that browsers offer."""

    label: str | Promise
    max_length: int
    kind: str = "text"  # as the type of an input; `long` has several lines
    autocomplete: str = "off"


# By the names of the fields; a landing page labels its other fields.
TYPES: Mapping[str, FieldType] = {
    "name": FieldType(gettext_lazy("Your name"), 100, autocomplete="name"),
    "phone": FieldType(gettext_lazy("Your phone number"), 32, "tel", "tel"),
    "email": FieldType(gettext_lazy("Your e-mail address"), 254, "email", "email"),
    "company": FieldType(gettext_lazy("Your company"), 200, autocomplete="organization"),
    "city": FieldType(gettext_lazy("Your city"), 100, autocomplete="address-level2"),
    "message": FieldType(gettext_lazy("Your message"), 2000, "long"),
}
_EXTRA_TYPE = FieldType("", 500)


class LeadField(msgspec.Struct, frozen=True):
    """One field of one landing page."""

    name: str
    required: bool
    own_label: str = ""

    @property
    def type(self) -> FieldType:
        return TYPES.get(self.name, _EXTRA_TYPE)

    @property
    def label(self) -> str:
        return self.own_label or str(self.type.label)

    @property
    def path(self) -> str:
        """The place of the field in the API's JSON."""
        return self.name if self.name in COLUMNS else f"extra.{self.name}"


def default_fields() -> list[dict[str, Any]]:
    return [{"name": name, "required": True, "label": ""} for name in COLUMNS]


# -- the configuration ---------------------------------------------------------------------------
def validate_field(entry: Any) -> None:
    """Check one entry of a configuration. Raises ValidationError."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValidationError(_("A field has a name."))
    name, label = entry["name"], entry.get("label", "")
    if unknown_names := set(entry) - {"name", "required", "label"}:
        raise ValidationError(_("A field has no “%s”.") % min(unknown_names))
    if not _NAME.fullmatch(name):
        raise ValidationError(
            _("%s: use up to 40 lower-case letters, digits and _, with a letter first.") % name
        )
    if name in RESERVED:
        raise ValidationError(_("%s is used by the platform; choose another name.") % name)
    if not isinstance(entry.get("required"), bool | None):  # a platform file's `no` is a text
        raise ValidationError(_("%s: “required” is true or false.") % name)
    if not isinstance(label, str) or len(label) > MAX_LABEL or has_controls(label):
        words = _("%(name)s: a label is one line of at most %(most)d characters, without controls.")
        raise ValidationError(words % {"name": name, "most": MAX_LABEL})
    # The platform has no label for fields that it does not know.
    if not label and name not in TYPES:
        raise ValidationError(_("%(name)s: write its label behind it, as in “%(name)s: …”.")
                              % {"name": name})  # fmt: skip


def validate_fields(entries: Any) -> None:
    """Check a whole configuration. Raises ValidationError."""
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_FIELDS:
        raise ValidationError(_("Ask for 1 to %d fields.") % MAX_FIELDS)
    names = set()
    for entry in entries:
        validate_field(entry)
        if entry["name"] in names:
            raise ValidationError(_("%s is there twice.") % entry["name"])
        names.add(entry["name"])
    if not any(entry.get("required") for entry in entries):
        raise ValidationError(_("Require at least one field: an empty lead helps nobody."))


# -- answers -------------------------------------------------------------------------------------
def clean_all(
    fields: Iterable[LeadField], form_values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns two mappings by the fields' names: the usable values that are not empty, and the
    errors."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in fields:
        try:
            value = clean(field, form_values.get(field.name))
        except InvalidInput as error:
            errors[field.name] = str(error)
        else:
            if value != "":
                values[field.name] = value
    return values, errors


def clean(field: LeadField, value: Any) -> Any:
    """The usable value, '' for none. Numbers and booleans of extra fields stay what they are.

    Raises InvalidInput whose `field` is the path in the API.
    """
    # A script may send numbers; known fields are texts.
    if isinstance(value, bool | int | float):
        if field.name not in TYPES:
            # A number that every database and CRM keeps unchanged. NaN is not a number either.
            if not abs(value) < _TOO_LARGE:
                words = _("Use a number of at most %d digits, or send it as a text.")
                raise InvalidInput(words % MAX_DIGITS, field.path)
            return value
        value = str(value)
    text = clean_text(value or "", field.type.max_length, field.path, field.type.kind == "long")
    if is_blank(text):
        if field.required:
            raise InvalidInput(_("Please fill this in."), field.path)
        return ""
    if field.type.kind == "tel":
        return clean_phone(text, field.path)
    if field.type.kind == "email":
        try:
            validate_email(text)
        except ValidationError:
            raise InvalidInput(
                _("This is no e-mail address: write it as name@example.com."), field.path
            ) from None
    return text


def clean_text(value: str, max_length: int, path: str, lines: bool = False) -> str:
    """The text without blanks around it. Raises InvalidInput when it is too long or has control
    characters."""
    text = value.strip()
    if lines:
        text = text.replace("\r\n", "\n")
    if len(text) > max_length:
        words = _("Use at most %(most)d characters; there are %(count)d.")
        raise InvalidInput(words % {"most": max_length, "count": len(text)}, path)
    if any(unicodedata.category(char) == "Cc" and not (lines and char in "\n\t") for char in text):
        raise InvalidInput(_("Remove the control characters."), path)
    return text


def clean_phone(text: str, path: str = "phone") -> str:
    """The digits of a phone number, after a + if it had one. Raises InvalidInput."""
    digits = phone_number(text)
    # Numbers that begin with 1 have 11 digits: mobiles in China, and all in North America.
    if not _PHONE.fullmatch(digits) or (digits[0] == "1" and len(digits) != 11):
        raise InvalidInput(
            _("This is no phone number: write it as 13800000000 or +44 20 7946 0000."), path
        )
    return digits


def phone_forms(text: str, path: str = "phone") -> tuple[str, ...]:
    """The forms in which `clean_phone` leaves this number: with and without the prefix of its
    country, and after + or 00. Raises InvalidInput."""
    digits = clean_phone(text, path)
    number, local = digits.removeprefix("+").removeprefix("00"), phone_digits(digits)
    is_mobile = bool(_CHINESE_MOBILE.fullmatch(local))
    # `phone_digits` takes away China's prefix, a carrier's, and the 0 of a trunk only.
    if number != local or (is_mobile and digits == number):
        forms = [local if is_mobile else f"0{local}", f"86{local}", f"+86{local}", f"0086{local}"]
    else:
        # +1 312 555 1234 without its + is a mobile in China, and somebody else's.
        forms = [f"+{number}", f"00{number}", *(() if is_mobile else (number,))]
    return tuple(dict.fromkeys([digits, *forms]))
