"""The two stores of messages, hot tables and archive, with the same interface.

Read the hot store first: a message that moves meanwhile is in the archive before its hot rows are
deleted. So a message may be found twice, and is never missed.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from django.db import DEFAULT_DB_ALIAS, models
from django.db.utils import InterfaceError, OperationalError, ProgrammingError
from django.utils.translation import gettext as _, gettext_noop

from msgplatform.core import logging
from msgplatform.core.archive.copying import Part
from msgplatform.core.archive.description import earliest_part
from msgplatform.core.archive.router import cold_alias
from msgplatform.core.errors import Unavailable, Undecryptable
from msgplatform.core.secrets import encryption
from notify.models import Attempt, BizMsg, ColdAttempt, ColdBizMsg, ColdReceiveMsg, ReceiveMsg

log = logging.get(__name__)

# The number of a web worker's sixteen threads that may read an archive in another database.
_MAX_READS, _MAX_WAIT_SECONDS = 4, 0.2
# A read that takes longer than `_LONG_SECONDS` and fails has met a server that hangs.
_LONG_SECONDS, _AWAY_SECONDS = 1.0, 5.0
_UNREADABLE = gettext_noop(
    "The archive cannot be read at present; older messages are missing here."
)


class Store(msgspec.Struct, frozen=True):
    """The three tables of a store and their database; `cold` is the archive."""

    _messages: type[models.Model]
    _deliveries: type[models.Model]
    _attempts: type[models.Model]
    using: str
    cold: bool

    @property
    def messages(self) -> models.QuerySet[Any]:
        return self._messages._base_manager.using(self.using)

    @property
    def deliveries(self) -> models.QuerySet[Any]:
        return self._deliveries._base_manager.using(self.using)

    @property
    def attempts(self) -> models.QuerySet[Any]:
        return self._attempts._base_manager.using(self.using)

    def deliveries_of(self, message_ids: Sequence[int]) -> models.QuerySet[Any]:
        return self._children(self.deliveries.filter(msg_id__in=message_ids), message_ids)

    def attempts_of(self, delivery_ids: Sequence[int]) -> models.QuerySet[Any]:
        return self._children(self.attempts.filter(copy_id__in=delivery_ids), delivery_ids)

    def _children(self, rows: models.QuerySet[Any], parents: Sequence[int]) -> models.QuerySet[Any]:
        """Skip partitions older than the parents', because no child is older than its parent."""
        if not self.cold or not parents:
            return rows
        return rows.filter(id__gte=earliest_part(min(parents)))


def hot() -> Store:
    return Store(BizMsg, ReceiveMsg, Attempt, DEFAULT_DB_ALIAS, cold=False)


def cold() -> Store:
    return Store(ColdBizMsg, ColdReceiveMsg, ColdAttempt, cold_alias(), cold=True)


def parts(
    source: Store,
    target: Store,
    message_ids: list[int],
    delivery_ids: list[int],
    columns_of_message: Mapping[str, Any],
    columns_of_delivery: Mapping[str, Any] | None = None,
) -> list[Part]:
    """The rows of messages to copy between the stores, with columns that only the target has."""
    return [
        Part(source._messages, target._messages, "id", message_ids, columns_of_message),
        Part(source._deliveries, target._deliveries, "id", delivery_ids, columns_of_delivery or {}),
        Part(source._attempts, target._attempts, "copy_id", delivery_ids),
    ]


def both() -> tuple[Store, Store]:
    """The stores in the order in which they are read."""
    return hot(), cold()


class Places:
    """Bounds the number of threads that wait for an archive that hangs; the other threads serve
    requests without the archive. A new read fails at once while long reads take all places, and
    for some seconds after a long read has failed."""

    def __init__(
        self,
        max_wait_seconds: float = _MAX_WAIT_SECONDS,
        long_seconds: float = _LONG_SECONDS,
        away_seconds: float = _AWAY_SECONDS,
    ) -> None:
        self._max_wait, self._long, self._away = max_wait_seconds, long_seconds, away_seconds
        self._lock = threading.Condition()
        self._begun: list[float] = []  # when the reads that go on began, in monotonic seconds
        self._away_until = 0.0
        self._of_thread = threading.local()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take a place; a thread that has a place keeps it for inner reads. Raises Unavailable."""
        if getattr(self._of_thread, "has_place", False):
            yield
            return
        with self._lock:
            is_free = self._lock.wait_for(
                lambda: len(self._begun) < _MAX_READS or self._is_hanging(), self._max_wait
            )
            now = time.monotonic()
            if not is_free or self._is_hanging() or now < self._away_until:
                raise Unavailable(_(_UNREADABLE))
            self._begun.append(now)
        self._of_thread.has_place = True
        try:
            yield
        except (OperationalError, InterfaceError):
            if time.monotonic() - now > self._long:
                self._away_until = time.monotonic() + self._away
            raise
        finally:
            self._of_thread.has_place = False
            with self._lock:
                self._begun.remove(now)
                self._lock.notify()

    def _is_hanging(self) -> bool:
        is_full = len(self._begun) >= _MAX_READS
        return is_full and time.monotonic() - min(self._begun) > self._long


_places = Places()


@contextmanager
def reading(store: Store) -> Iterator[None]:
    """Raise Unavailable, with a sentence for people, when an archive in a database of its own
    cannot be read; an error of the main database is raised as it is."""
    if not store.cold or store.using == DEFAULT_DB_ALIAS:
        yield
        return
    try:
        with _places.take():
            yield
    # ProgrammingError: the archive's tables do not exist.
    except (OperationalError, InterfaceError, ProgrammingError) as error:
        log.warning("archive_unreadable", why=str(error)[:200])
        raise Unavailable(_(_UNREADABLE)) from error


def unseal(message: Any) -> None:
    """Decrypt the payload of an instance, which must not be saved. Raises Unavailable."""
    try:
        message.payload = encryption.unseal(bytes(message.payload))
    except Undecryptable as error:
        text = _("The payload is encrypted: %(why)s. Add the key, and restart.")
        raise Unavailable(text % {"why": error}) from error


def archive_warning() -> str:
    """A sentence when the archive cannot be read."""
    store = cold()
    try:
        with reading(store):
            store.messages.order_by().exists()
    except Unavailable as error:
        return str(error)
    return ""
