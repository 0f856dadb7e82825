"""Stored secrets, encrypted with the first key of ENCRYPTION_KEY, and decrypted with any of its
keys.

The stored text is `enc1:` and a Fernet token (AES-128-CBC with HMAC-SHA256) of the text in UTF-8.
`core.secrets.fields` has the model fields that use this.
"""

from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from msgplatform.core.errors import Undecryptable

# Distinguishes encrypted from clear text, and would distinguish a second format from this one.
PREFIX = "enc1:"
_SEALED = PREFIX.encode()


class State(StrEnum):
    """The state of a stored value. OLD and CLEAR must be encrypted again; UNREADABLE lacks its
    key."""

    CURRENT = "under the first key"
    OLD = "under an old key"
    CLEAR = "in clear text"
    UNREADABLE = "under a key that is unknown"


def new_key() -> str:
    """A fresh key: 32 random bytes in URL-safe base64."""
    return Fernet.generate_key().decode()


def is_usable(keys: Sequence[str]) -> bool:
    """True if there are keys, and none is malformed."""
    try:
        return bool([Fernet(key) for key in keys])
    except ValueError:
        return False


def is_encrypted(stored_text: str) -> bool:
    return stored_text.startswith(PREFIX)


def encrypt(clear: str) -> str:
    """The text to store. Raises ImproperlyConfigured if there is no key, or a malformed one."""
    return PREFIX + _fernet(_keys()).encrypt(clear.encode()).decode()


def decrypt(stored_text: str) -> str:
    """The clear text; text without the prefix is returned as it is. Raises Undecryptable.

    Results are cached: daemons read the same rows every two seconds.
    """
    return _decrypt_with_any(stored_text, _keys()) if is_encrypted(stored_text) else stored_text


def is_sealed(stored: bytes) -> bool:
    return stored.startswith(_SEALED)


def seal(clear: bytes) -> bytes:
    """Bytes to store for content that may be large; they are ASCII. Raises as `encrypt` does."""
    return _SEALED + _fernet(_keys()).encrypt(clear)


def unseal(stored: bytes) -> bytes:
    """The content of bytes from `seal`; other bytes are returned as they are. Not cached. Raises
    Undecryptable."""
    if not is_sealed(stored):
        return stored
    try:
        return _fernet(_keys()).decrypt(stored[len(_SEALED) :])
    except InvalidToken:
        raise Undecryptable("no key in ENCRYPTION_KEY decrypts it") from None


def reseal(stored: bytes) -> bytes | None:
    """The same content under the first key; None if already so. Raises Undecryptable."""
    try:
        _fernet(_keys()[:1]).decrypt(stored[len(_SEALED) :])
    except InvalidToken:
        return seal(unseal(stored))
    return None


def state(stored_text: str) -> State:
    """Empty text counts as current: there is nothing to hide."""
    if not is_encrypted(stored_text):
        return State.CLEAR if stored_text else State.CURRENT
    # Try the first key alone, because MultiFernet does not tell which key decrypted a text.
    for keys, state_of_keys in ((_keys()[:1], State.CURRENT), (_keys(), State.OLD)):
        with suppress(Undecryptable):
            _decrypt_with_any(stored_text, keys)
            return state_of_keys
    return State.UNREADABLE


def _keys() -> tuple[str, ...]:
    keys: tuple[str, ...] = settings.ENCRYPTION_KEYS
    return keys


@lru_cache(maxsize=16)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    if not is_usable(keys):
        raise ImproperlyConfigured("ENCRYPTION_KEY is not set, or holds a text that is not a key")
    return MultiFernet([Fernet(key) for key in keys])


# The cache is by keys too: tests and changed settings must not get results of other keys.
@lru_cache(maxsize=65_536)
def _decrypt_with_any(stored_text: str, keys: tuple[str, ...]) -> str:
    try:
        return _fernet(keys).decrypt(stored_text.removeprefix(PREFIX)).decode()
    except (InvalidToken, UnicodeDecodeError):
        raise Undecryptable("no key in ENCRYPTION_KEY decrypts it") from None
