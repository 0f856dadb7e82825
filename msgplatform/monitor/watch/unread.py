"""An alert about alerts whose conditions cannot be read: they are neither raised nor resolved.

An unforeseen error of code that reads conditions would only be logged every few seconds. An
unavailable server is different: it has an alert of its own, or answers again soon.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts, logging
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.monitor.watch import WATCH, key

log = logging.get(__name__)

# Looks in a row that a database may refuse. A lock or a slow moment does not last longer.
MAX_REFUSALS = 4


# The kind of alert whose conditions could not be read → the error.
Errors = dict[str, Exception]


@contextmanager
def noting(errors: Errors, kinds: Collection[str]) -> Iterator[None]:
    """Catch the block's error and add it to `errors` for these kinds. Their alerts stay as they
    are, and the watch goes on with other kinds."""
    try:
        yield
    except UNAVAILABLE as error:
        log.warning("conditions_not_read", kinds=list(kinds), why=str(error)[:200])
        errors |= dict.fromkeys(kinds, error)
    except Exception as error:
        log.exception("conditions_not_read", kinds=list(kinds))
        errors |= dict.fromkeys(kinds, error)


class UnreadAlerts:
    """The kinds whose conditions this process could not read, from look to look."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}  # kind → looks in a row

    def report(self, errors: Errors) -> None:
        """Raise an alert for each kind that cannot be read, and resolve the alerts of other
        kinds."""
        self._looks = {kind: self._looks.get(kind, 0) + 1 for kind in errors}
        conditions = []
        for kind, error in errors.items():
            # An unavailable Redis has an alert of its own.
            is_refused = not isinstance(error, RedisError) and self._looks[kind] >= MAX_REFUSALS
            if isinstance(error, UNAVAILABLE) and not is_refused:
                continue
            condition = Condition.of(
                key(WATCH, kind),
                _("The condition of the alert %(kind)s cannot be looked up"),
                _(
                    "%(error)s. Nobody hears of new alerts of this kind, and open ones stay open. "
                    "The entry conditions_not_read in the log of a program has more."
                ),
                kind=kind,
                error=f"{type(error).__name__}: {error}"[:500],
            )
            conditions.append(condition)
        alerts.reconcile([WATCH], conditions, {key(WATCH, kind) for kind in errors}.__contains__)
