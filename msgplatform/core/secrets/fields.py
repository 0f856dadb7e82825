"""Model fields for secrets: encrypted text and JSON, and bytes that may be sealed."""

import json
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldError, ValidationError
from django.db import models
from django.db.models.query_utils import DeferredAttribute
from django.utils.translation import gettext_noop

from msgplatform.core.errors import Undecryptable
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.secrets import encryption


@dataclass(frozen=True, slots=True, repr=False)
class Unreadable:
    """Placeholder for a value that no key decrypts, for places that cannot raise (`values()`,
    forms)."""

    stored: str

    def __repr__(self) -> str:
        return "<unreadable>"


class _Readable(DeferredAttribute):
    """An attribute of an instance; reading it raises Undecryptable if no key decrypts its value."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, Unreadable):
            words = gettext_noop(
                "the %(field)s cannot be decrypted: add its key to ENCRYPTION_KEY and restart, or "
                "set it again"
            )
            raise Undecryptable(lazy_message(words, field=self.field.verbose_name))
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        """`__set__` makes Python call `__get__` before it reads the instance's dict."""
        vars(instance)[self.field.attname] = value


class EncryptedTextField(models.Field):  # type: ignore[type-arg]  # none at run time
    """Text that the database holds encrypted (`core.secrets.encryption`), for secrets.

    Instances and `values()` have the clear text; the only lookup is `isnull`. A form contains it
    only if the form declares a field for it, and `dumpdata` writes the encrypted text.

    A value that no key decrypts does not affect the rest of its row: reading the attribute raises
    Undecryptable, `values()` has an Unreadable, and saving the row keeps the stored text.

    A stored value without the prefix is read as clear text, because programs of two releases may
    run side by side during an update. `doctor` reports such values as an error, and
    `rotate_encryption_key` encrypts them. Empty text is stored as it is.
    """

    descriptor_class = _Readable

    def get_internal_type(self) -> str:
        return "TextField"

    def dumps(self, value: Any) -> str:
        """The text to encrypt."""
        return str(value)

    def loads(self, text: str) -> Any:
        """The value of a decrypted text. Raises ValueError."""
        return text

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        if value is None:
            return None
        try:
            return self.loads(encryption.decrypt(value))
        except (Undecryptable, ValueError):
            return Unreadable(value)

    def get_prep_value(self, value: Any) -> str | None:
        value = super().get_prep_value(value)
        if value is None:
            return None
        # Saving a row must not lose a value whose key is missing only at present.
        if isinstance(value, Unreadable):
            return value.stored
        text = self.dumps(value)
        return encryption.encrypt(text) if text else text

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        return self.value_from_object(model_instance)

    def value_from_object(self, obj: models.Model) -> Any:
        """The value, or an Unreadable."""
        # Read the instance's dict, because the attribute raises for an Unreadable.
        value = vars(obj).get(self.attname)
        return value if isinstance(value, Unreadable) else super().value_from_object(obj)

    def value_to_string(self, obj: models.Model) -> Any:
        return self.get_prep_value(self.value_from_object(obj))

    def to_python(self, value: Any) -> Any:
        """Decrypt results of `value_to_string` too."""
        if not (isinstance(value, str) and encryption.is_encrypted(value)):
            return value
        try:
            return self.loads(encryption.decrypt(value))
        except (Undecryptable, ValueError) as error:
            raise ValidationError(str(error)) from None

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        return None

    def get_lookup(self, lookup_name: str) -> Any:
        # Each encryption of a text differs, so that an equality would never match.
        if lookup_name != "isnull":
            raise FieldError(f"{self.name} is encrypted: only isnull can be looked up")
        return super().get_lookup(lookup_name)


class EncryptedJSONField(EncryptedTextField):
    """A JSON value, encrypted like an EncryptedTextField."""

    def dumps(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def loads(self, text: str) -> Any:
        return json.loads(text)


class SealedBinaryField(models.BinaryField):  # type: ignore[type-arg]  # none at run time
    """Bytes that may be sealed (`core.secrets.encryption.seal`). Instances, `values()` and SQL have
    the stored bytes: code that shows the content must unseal it."""

    def deconstruct(self) -> Any:
        name, _path, args, options = super().deconstruct()
        return name, "django.db.models.BinaryField", args, options  # the same column


def encrypted_names(model: type[models.Model]) -> frozenset[str]:
    """The names of a model's encrypted fields."""
    fields = model._meta.concrete_fields
    return frozenset(f.name for f in fields if isinstance(f, EncryptedTextField))
