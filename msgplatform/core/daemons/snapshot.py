"""Settings in memory, which a process goes on using while the database is unavailable."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from django.db.models import Model

from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bounded_call
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import UNAVAILABLE

T = TypeVar("T")
Row = TypeVar("Row", bound=Model)

log = logging.get(__name__)

# Seconds until a change in the console reaches a running process.
REFRESH_SECONDS = 2.0
# Seconds between loads for missing values, so that a flood of unknown names costs little.
MISS_SECONDS = 0.25
# Seconds between reports of unusable rows: people may resolve the alert meanwhile.
REPORT_SECONDS = 60.0


class Snapshot(Generic[T]):
    """The settings of the last `load`, which a subclass implements. All threads of a process share
    the snapshot.

    `known` is replaced as a whole: read related values from the same `known`.
    """

    _last_change = _known_change = object()  # of this process, and as `known` has it
    _changed_at = -math.inf  # monotonic

    def __init__(self, empty: T, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self.known, self._is_loaded = empty, False
        self._next_refresh = Every(refresh_seconds)
        self._lock = threading.Lock()
        self._next_after_miss = Every(MISS_SECONDS)
        self._miss_lock = threading.Lock()

    @staticmethod
    def expire_all() -> None:
        """Let all snapshots of this process load again. Call it after a change's commit."""
        Snapshot._changed_at = time.monotonic()
        Snapshot._last_change = object()

    def load(self) -> T:
        """Read everything from the database; never called by two threads at once."""
        raise NotImplementedError

    @property
    def is_fresh(self) -> bool:
        """True if `refresh` would not ask the database now."""
        return not self._is_due(at_once=False)

    def refresh(self, at_once: bool = False) -> None:
        """Load again if `refresh_seconds` are over, or `at_once`.

        While the database is unavailable, or hangs (see `bounded_call`), the last values stay. The
        database's error is raised only before the first load; other errors are always raised.
        """
        if not self._is_due(at_once):
            return
        # One thread loads. Other threads go on with the last values, unless they need new ones.
        # After a change they wait for them; not long, because the database may hang.
        patience = Snapshot._changed_at + bounded_call.PATIENCE_SECONDS - time.monotonic()
        must_load = at_once or not self._is_loaded
        wait = -1 if must_load else max(0.0, patience) if self._has_changed else 0.0
        if not self._lock.acquire(timeout=wait):
            return
        if must_load:
            self._load_and_release(at_once)
            return
        with suppress(TimeoutError):
            bounded_call.ask(partial(self._load_and_release, at_once))

    def refresh_after_miss(self) -> bool:
        """Load again, because a missing value may have been added since the last load. True if
        `known` is newer now. All threads together load at most every MISS_SECONDS; an unavailable
        database changes nothing."""
        last_known = self.known
        with self._miss_lock:  # other threads wait for this load
            if self.known is last_known and self._next_after_miss.is_due:
                self._next_refresh.at_once()
                try:
                    self.refresh()
                finally:
                    self._next_after_miss.restart()
        return self.known is not last_known

    def _load_and_release(self, at_once: bool) -> None:
        try:
            if not self._is_due(at_once):  # another thread has loaded while this one waited
                return
            # The seconds begin before the load: a database that fails is not asked at every call.
            self._next_refresh.restart()
            change = Snapshot._last_change  # later changes need another load
            try:
                self.known = self.load()
            except UNAVAILABLE as error:
                if not self._is_loaded:
                    raise
                log.warning("settings_not_refreshed", of=type(self).__name__, why=str(error)[:200])
                return
            finally:
                self._known_change = change
            self._is_loaded = True
        finally:
            self._lock.release()

    def _is_due(self, at_once: bool) -> bool:
        return at_once or not self._is_loaded or self._has_changed or self._next_refresh.is_due

    @property
    def _has_changed(self) -> bool:
        return self._known_change is not Snapshot._last_change


class Rows(Generic[Row, T]):
    """Turns rows into objects by `make`. A row for which `make` fails is left out, so that other
    rows go on, and has an open alert until the row is corrected or deleted, or `is_off`: then
    nobody needs it.

    The alert's key is `kind:<id of the row>`. `title` and `text` are lazy messages with the row's
    %(name)s and the %(error)s.
    """

    def __init__(
        self, make: Callable[[Row], T], kind: str, title: str, text: str,
        is_off: Callable[[Row], bool],
    ) -> None:  # fmt: skip
        self._make, self._kind, self._title, self._text = make, kind, title, text
        self._is_off = is_off
        self._unusable: Mapping[int, alerts.Condition | None] = {}  # None: no alert
        # None before the first report, because another process may have left an alert open.
        self._reported: frozenset[int] | None = None
        self._next_report = Every(REPORT_SECONDS)

    def usable(
        self, rows: Iterable[Row], known: Mapping[int, T] | None = None, ids: Iterable[int] = ()
    ) -> dict[int, T]:
        """The results of `make` by id, in the order of the rows.

        With `known`, an earlier result, `rows` are only the rows that changed since. `ids` are the
        ids of all rows that exist now, in the order of the result.
        """
        objects: dict[int, T] = dict(known or {})
        unusable = dict(self._unusable) if known is not None else {}
        for row in rows:
            objects.pop(row.pk, None)
            unusable.pop(row.pk, None)
            try:
                objects[row.pk] = self._make(row)
            except UNAVAILABLE:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it
                key, values = f"{self._kind}:{row.pk}", {"name": str(row), "error": str(error)}
                condition = alerts.Condition.of(key, self._title, self._text, **values)
                unusable[row.pk] = None if self._is_off(row) else condition
        if known is not None:
            objects = {pk: objects[pk] for pk in ids if pk in objects}
            unusable = {pk: unusable[pk] for pk in ids if pk in unusable}
        self._unusable = unusable
        self.report()
        return objects

    def report(self) -> None:
        """Make the open alerts match the last `usable`: at once if the unusable rows have changed,
        and every REPORT_SECONDS while there are any."""
        unusable = {pk: condition for pk, condition in self._unusable.items() if condition}
        ids = frozenset(unusable)
        is_due = bool(ids) and self._next_report.is_due
        if not is_due and ids == self._reported:
            return
        if alerts.reconcile([self._kind], unusable.values()):
            self._reported = ids
            self._next_report.restart()

    def is_unusable(self, row_id: int) -> bool:
        """True if the row exists, but must be corrected before use."""
        return row_id in self._unusable
