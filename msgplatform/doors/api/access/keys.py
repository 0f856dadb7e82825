"""API keys: `mp_<12 characters: the public prefix>_<43 characters: the secret>`.

In a cell the prefix has 14 characters, and the first two name the cell, for the proxy in front of
all cells. A key whose prefix names no cell is as good there: it was made before.

Only the SHA-256 of the whole key is stored. The prefix finds and names a key. The secret has 256
random bits, so a plain hash is enough: nobody can guess it.
"""

import hashlib
import hmac
import re
import secrets
import string
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.core import signals
from django.db import DatabaseError, connections, router
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_noop

from msgplatform.core import cells, flows, logging
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.access.key_cache import ApiCaller, KeyCache, ValidKey, used_keys
from msgplatform.models import ApiKey, Biz

log = logging.get(__name__)

MAX_NAME_LENGTH = 100
_PREFIX_ALPHABET = string.ascii_lowercase + string.digits
_PREFIX_LENGTH = 12
_SECRET_BYTES = 32  # 43 characters of base64url
_FORMAT = re.compile(rf"mp_((?:[0-9a-f]{{2}})?[a-z0-9]{{{_PREFIX_LENGTH}}})_[A-Za-z0-9_-]{{43}}")
# Seconds between writes of `last_used_at`: an exact time would cost a write for each request.
_LAST_USED_STEP = timedelta(minutes=1)
# A key without an end has no time at all: not every zone has the last day of the year 9999.
_MAX_LIFE = timedelta(days=36_525)

# Scopes beside those of flows (`Flow.management_scopes`).
_PLATFORM_SCOPES = {
    "manage:systems": gettext_noop("set up business systems"),
    "manage:keys": gettext_noop("make and revoke the keys of business systems"),
    "manage:alerts": gettext_noop("read, acknowledge and resolve alerts"),
    "manage:alert-channels": gettext_noop("set up where alerts go, and test it"),
    "manage:failures": gettext_noop("read failures, acknowledge them and send them again"),
    "manage:audit": gettext_noop("read what people and keys have changed"),
    "manage:people": gettext_noop("set up the people of the console, and their groups"),
    "manage:person-data": gettext_noop("find, export and erase one person's data"),
    "manage:platform": gettext_noop("apply and export platform files: all that they have"),
    "manage:jobs": gettext_noop("start, watch, pause and cancel bulk jobs, such as sending again"),
    "manage:statistics": gettext_noop("read statistics"),
}
# Scopes that only a superuser gives: a key that makes people can act as anybody, and an erasure
# cannot be undone.
SUPERUSER_SCOPES = frozenset({"manage:people", "manage:person-data"})

_cache = KeyCache()
_writing = threading.Lock()  # held by the thread that stores `last_used_at`


def scopes() -> dict[str, str]:
    """The scopes of a business system's keys, each with its meaning."""
    return {scope: text for flow in flows.all() for scope, text in flow.scopes.items()}


def management_scopes() -> dict[str, str]:
    """The scopes of management keys, which belong to no business system."""
    return _PLATFORM_SCOPES | {
        scope: text for flow in flows.all() for scope, text in flow.management_scopes.items()
    }


def check_scopes(scope_names: Iterable[str], is_management: bool) -> list[str]:
    """The scopes in order, each once. Raises InvalidInput for one that the key cannot have."""
    names = sorted(set(scope_names))
    valid_scopes = management_scopes() if is_management else scopes()
    if unknown := [scope for scope in names if scope not in valid_scopes]:
        choices = ", ".join(sorted(valid_scopes)) or _("none")
        owner = _("A management key") if is_management else _("A key of a business system")
        raise InvalidInput(
            _("%(whose)s cannot have the scope %(scopes)s. It can have: %(there)s.")
            % {"whose": owner, "scopes": ", ".join(unknown), "there": choices},
            "scopes",
        )
    if not names:
        raise InvalidInput(_("A key without a scope can do nothing: name at least one."), "scopes")
    return names


def check_limit(system_names: Collection[str], is_management: bool) -> None:
    """Raises InvalidInput for a limit of a key that belongs to a business system."""
    if system_names and not is_management:
        raise InvalidInput(
            _("A key of a business system sees only that system: leave this empty."), "systems"
        )


def check_expiry(expires_at: datetime | None) -> None:
    """Raises InvalidInput for a time in the past, or more than 100 years ahead."""
    if expires_at is None:
        return
    life = expires_at - timezone.now()
    if life <= timedelta():
        raise InvalidInput(_("This time is in the past; choose one in the future."), "expires_at")
    if life > _MAX_LIFE:
        raise InvalidInput(
            _("This time is more than 100 years ahead; leave it empty if the key has no end."),
            "expires_at",
        )


def check_name(name: str, is_management: bool) -> None:
    """Raises InvalidInput for a name that cannot be shown, or be a part of the API's addresses."""
    words = ""
    if not name.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        words = _("Say where the key is used, in 1 to %d characters.") % MAX_NAME_LENGTH
    elif "/" in name and not is_management:
        words = _("No slash, and no blanks around it: the name is a part of addresses.")
    if words:
        raise InvalidInput(words, "name")


def create(
    biz: Biz | None,
    name: str,
    scope_names: Iterable[str],
    expires_at: datetime | None = None,
    system_names: Iterable[str] = (),
) -> tuple[ApiKey, str]:
    """A new key and its plain text, which cannot be read again. Without `biz` it is a management
    key, limited to `system_names` (empty: no limit). Raises InvalidInput."""
    scopes_of_key = check_scopes(scope_names, is_management=biz is None)
    systems_of_key = sorted(set(system_names))
    stored_names = Biz.objects.filter(name__in=systems_of_key).values_list("name", flat=True)
    if unknown := sorted(set(systems_of_key).difference(stored_names)):
        words = _("There is no business system %s.") % ", ".join(unknown)
        raise InvalidInput(words, "systems")
    check_limit(systems_of_key, is_management=biz is None)
    check_name(name, is_management=biz is None)
    check_expiry(expires_at)
    random_part = "".join(secrets.choice(_PREFIX_ALPHABET) for _ in range(_PREFIX_LENGTH))
    prefix = cells.own().code + random_part
    plain = f"mp_{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    key = ApiKey.objects.create(
        biz=biz,
        name=name.strip(),
        prefix=prefix,
        hash=_digest(plain),
        scopes=scopes_of_key,
        systems=systems_of_key,
        expires_at=expires_at,
    )
    return key, plain


def revoke(key: ApiKey) -> None:
    """Refuse the key: at once in this process, in others when their cache expires (30 s)."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key.refresh_from_db(fields=["revoked_at"])
    forget()


def forget() -> None:
    """Empty this process's cache of keys."""
    _cache.clear()


def verify(plain: str, admit: Callable[[], None] = lambda: None) -> ApiCaller | None:
    """The key's owner; None if the key is malformed, unknown, revoked or expired, or its owner is
    disabled.

    `admit` is called before the database is asked for an unknown key; it refuses by raising.
    """
    match = _FORMAT.fullmatch(plain)
    if match is None:  # most guesses do not have the form of a key: do not ask the database
        return None
    digest = _digest(plain)
    return _cache.get(digest, lambda: _load(match[1], digest), admit)


def cached_caller(plain: str) -> ApiCaller | None:
    """The key's owner, if this process knows the key without asking the database."""
    return _cache.peek(_digest(plain))


def _digest(plain: str) -> str:
    return hashlib.sha256(plain.encode()).hexdigest()


def _load(prefix: str, digest: str) -> ValidKey | None:
    owner_condition = Q(biz=None) | Q(biz__enabled=True)
    rows = ApiKey.objects.filter(owner_condition, prefix=prefix, revoked_at=None)
    with _briefly_connected(router.db_for_read(ApiKey)):
        row: Mapping[str, Any] | None = rows.values(
            "id", "name", "hash", "scopes", "systems", "expires_at", "last_used_at", "biz_id",
            "biz__name",
        ).first()  # fmt: skip
    # Find rows by prefix and compare the hashes in constant time: the timing of a lookup by hash
    # could leak the hash.
    if row is None or not hmac.compare_digest(row["hash"], digest):
        return None
    last_used: datetime | None = row["last_used_at"]
    if last_used is None or timezone.now() - last_used >= _LAST_USED_STEP:
        used_keys.add(row["id"])
    expires_at: datetime | None = row["expires_at"]
    caller = ApiCaller(
        row["biz_id"] or 0,
        row["biz__name"] or "",
        row["id"],
        frozenset(row["scopes"]),
        row["name"],
        frozenset(row["systems"] or ()),
    )
    return ValidKey(caller, expires_at.timestamp() if expires_at else None)


def write_last_used(**_signal: object) -> None:
    """Store when keys were used, at most once a minute for each; called after the answer is sent.

    One thread does it at a time: while it waits for the database, others serve requests.
    """
    if not used_keys or not _writing.acquire(blocking=False):
        return
    try:
        ids = set(used_keys)
        used_keys.difference_update(ids)  # remove before the write: a use meanwhile is noted again
        now = timezone.now()
        due_condition = Q(last_used_at=None) | Q(last_used_at__lte=now - _LAST_USED_STEP)
        with _briefly_connected(router.db_for_write(ApiKey)):
            ApiKey.objects.filter(due_condition, id__in=ids).update(last_used_at=now)
    except DatabaseError as error:
        log.warning("last_used_not_written", keys=len(ids), why=str(error))
    finally:
        _writing.release()


signals.request_finished.connect(write_last_used, dispatch_uid="api_keys_last_used")


@contextmanager
def _briefly_connected(alias: str) -> Iterator[None]:
    """Close the connection afterwards if it was opened only for this.

    Otherwise each server thread that once looked up a key would keep a connection open, and idle
    threads would use up the database's limit.
    """
    connection = connections[alias]
    was_open = connection.connection is not None
    try:
        yield
    finally:
        if not was_open:
            connection.close()
