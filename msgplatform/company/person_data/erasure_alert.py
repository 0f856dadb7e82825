"""The alerts about an erasure that fails or waits for days, and about a list that cannot be
written."""

from __future__ import annotations

import socket
from collections.abc import Container
from dataclasses import dataclass
from datetime import timedelta

from msgplatform.company.person_data import erasure_list
from msgplatform.company.person_data.models import Erasure
from msgplatform.core import alerts
from msgplatform.core.alerts import Condition
from msgplatform.core.data import sql
from msgplatform.core.durations import age
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import Alert
from msgplatform.monitor.watch import ERASURE, key

# A text waits up to two days for its Report, and a delivery as long for its next attempts.
PATIENCE = timedelta(days=3)
_MAX_CONDITIONS = 100
# A process that cannot write its list reports that each minute. A process without a report for
# longer is gone, and in a container the name of its host is gone too.
_LIST_GONE = timedelta(minutes=10)
_LIST = key(ERASURE, "list")
_State = Erasure.State


def report() -> None:
    """Raise or resolve the alert of each erasure."""
    rows = Erasure.objects.filter(state__in=Erasure.OPEN).order_by("id")[:_MAX_CONDITIONS]
    now = sql.now()
    conditions = []
    for row in rows:
        waited = now - (row.repeated_at or row.created_at)
        if row.error and row.state == _State.WAITING:
            subject = lazy_message("An erasure of one person's data fails")
            text = lazy_message(
                "%(error)s in %(store)s. It is tried again each minute; the entry "
                "erasure_failed in the log of run_bulk has more.",
                error=row.error,
                store=row.store,
            )
        elif waited > PATIENCE:
            subject = lazy_message("An erasure of one person's data waits")
            text = lazy_message(
                "It was asked for %(age)s ago. On their way: %(open)s.",
                age=age(waited.total_seconds()),
                open=", ".join(f"{name} {count}" for name, count in row.open.items()) or "–",
            )
        else:
            continue
        conditions.append(Condition(key(ERASURE, row.key), subject, text))
    tried_keys = {
        key(ERASURE, row.key) for row in rows if row.error and row.state == _State.RUNNING
    }
    lists = Alert.objects.filter(open_key__startswith=_LIST, last_at__gte=now - _LIST_GONE)
    list_keys = {open_key for open_key in lists.values_list("open_key", flat=True) if open_key}
    alerts.reconcile([ERASURE], conditions, _Undecided(tried_keys, list_keys))


def raise_for_list(error: OSError) -> None:
    """The list of this machine cannot be written."""
    text = lazy_message(
        "%(file)s: %(why)s. Nothing repeats the erasures that it lacks after the database is "
        "restored, and no erasure can be asked for on this machine.",
        file=str(erasure_list.path()),
        why=error.strerror or type(error).__name__,
    )
    subject = lazy_message(
        "The list of erasures on %(host)s cannot be written", host=socket.gethostname()
    )
    alerts.raise_alert(ERASURE, subject, text, _list_key())


def resolve_for_list() -> None:
    alerts.resolve(_list_key())


def _list_key() -> str:
    return f"{_LIST}-{socket.gethostname()}"


@dataclass
class _Undecided(Container[str]):
    """Keys of alerts that stay as they are. Erasures that are tried again may work or wait for a
    server. Machines with a recent report about their list decide about its alert themselves."""

    tried_keys: Container[str]
    list_keys: Container[str]

    def __contains__(self, alert_key: object) -> bool:
        return alert_key in self.tried_keys or alert_key in self.list_keys
