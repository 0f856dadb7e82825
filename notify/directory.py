"""The cache of subscriptions' settings. Daemons use the cache while the database is
unavailable."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import chain
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from msgplatform.core import alerts
from msgplatform.core.daemons.snapshot import REFRESH_SECONDS, Rows, Snapshot
from msgplatform.core.data import chunks, engines, sql
from msgplatform.core.errors import Undecryptable
from msgplatform.models import Biz
from notify import orders, signals
from notify.models import DEFAULT_SCHEDULE, BizReceive, Receive
from notify.subscriptions import formats, limits, payload_filter, sandbox

CLOCK_TOLERANCE_SECONDS = 30.0
# The errors of `from_row` for a row that a person must correct.
UNUSABLE = (TypeError, ValueError, AttributeError, Undecryptable)
KIND = "notify.subscription"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One row of biz_receive with its consumer, ready for use."""

    id: int
    biz_id: int
    queue: str
    status: int
    url: str
    keys: tuple[bytes, ...] = field(repr=False)
    header_prefix: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    networks: tuple[IPv4Network | IPv6Network, ...]
    timeout: float
    schedule: tuple[float, ...]  # a wait after each failed attempt but the last
    in_flight_limit: int
    rate_limit: float  # requests a second; 0: no limit
    failing_since: datetime | None
    own_process: bool = False  # only a sender dedicated to this subscription takes its orders
    format: str = formats.Format.STANDARD
    log_answers: str = limits.KeptAnswers.ALL
    source: str = ""  # the `source` of CloudEvents, a URI reference
    is_listened: bool = False  # a listener fetches the deliveries, no sender sends them
    own_host: str = ""  # the platform's own web server, for a sandbox

    @property
    def is_active(self) -> bool:
        """True if the subscription's status lets deliveries go out."""
        return self.status in BizReceive.ACTIVE

    @property
    def is_sendable(self) -> bool:
        """True if senders send the subscription's deliveries now."""
        return self.is_active and not self.is_listened


# The columns that `from_row` uses, for raw SQL. Columns that programs write all the time, such as
# `failures`, are left out, because each change makes every program read the row.
COLUMNS: Mapping[str, Sequence[str]] = {
    "s": (
        "biz_id", "receive_id", "status", "timeout", "schedule", "attempts_limit",
        "in_flight_limit", "rate_limit", "failing_since", "own_process", "format", "log_answers",
        "filter",
    ),
    "r": (
        "name", "title", "url", "delivery", "secret", "previous_secret", "previous_secret_until",
        "header_prefix", "headers", "networks",
    ),
    "b": ("name", "title"),
}  # fmt: skip
_CHUNK = 500


def _read_checksums() -> dict[int, int] | None:
    """Subscription id → checksum of the subscription and its consumer, in the order of the ids."""
    columns = [f"{table}.{name}" for table, names in COLUMNS.items() for name in names]
    # The previous secret stops signing at a time by this machine's clock: see `Receive.keys`.
    checksum = engines.of().checksum([*columns, "r.previous_secret_until > %s"])
    if checksum is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT s.id, {checksum} FROM biz_receive s JOIN receive r ON r.id = s.receive_id "  # noqa: S608
            f"JOIN {Biz._meta.db_table} b ON b.id = s.biz_id ORDER BY s.id",
            [sql.stored(timezone.now())],
        )
        return dict(cursor.fetchall())


class _SubscriptionsById(dict[int, Subscription]):
    """Subscriptions by id, and the selections of them that every turn needs."""

    @cached_property
    def by_queue(self) -> Mapping[str, Subscription]:
        return {row.queue: row for row in self.values()}

    @cached_property
    def listened(self) -> Mapping[int, Subscription]:
        return {pk: row for pk, row in self.items() if row.is_listened}


class Subscriptions(Snapshot[_SubscriptionsById]):
    """All subscriptions by id, without unusable ones."""

    def __init__(self, refresh_seconds: float = REFRESH_SECONDS) -> None:
        super().__init__(_SubscriptionsById(), refresh_seconds)
        # Seconds by which this machine's clock is ahead of the database's clock. Leases end by the
        # database's clock.
        self.clock_ahead = 0.0
        # False at first, because an alert of an earlier process may be open.
        self._clock_is_settled = False
        self._rows = Rows(
            from_row, KIND, _("The subscription %(name)s cannot be used"),
            _("%(error)s. Correct it in the console; its deliveries wait."),
            lambda row: row.status == BizReceive.Status.DISCARDED,
        )  # fmt: skip
        self._checksums: Mapping[int, int] = {}  # of the subscriptions in `known`

    def load(self) -> _SubscriptionsById:
        """Read the rows that have changed. Reading thousands of rows would take half a second."""
        self._compare_clocks()
        checksums = _read_checksums()
        rows = BizReceive.objects.select_related("biz", "receive").order_by("id")
        if checksums is None or not self._checksums:
            subscriptions = self._rows.usable(rows)
        else:
            old_checksums = self._checksums
            changed_ids = [pk for pk, value in checksums.items() if old_checksums.get(pk) != value]
            if not changed_ids and len(old_checksums) == len(checksums):
                self._rows.report()
                return self.known
            changed_rows = chain.from_iterable(
                rows.filter(id__in=ids) for ids in chunks(changed_ids, _CHUNK)
            )
            subscriptions = self._rows.usable(changed_rows, self.known, checksums)
        # A row that changed between the two statements has no checksum: the next load reads it.
        later_checksums = _read_checksums() or {}
        self._checksums = {
            pk: value for pk, value in (checksums or {}).items() if later_checksums.get(pk) == value
        }
        return _SubscriptionsById(subscriptions)

    def _compare_clocks(self) -> None:
        before_at = time.time()
        database = sql.now().timestamp()
        self.clock_ahead = (before_at + time.time()) / 2 - database
        # While the clock is wrong each load raises the alert, in case the database was unavailable.
        is_wrong = abs(self.clock_ahead) >= CLOCK_TOLERANCE_SECONDS
        if not is_wrong and self._clock_is_settled:
            return
        host, seconds = socket.gethostname(), f"{self.clock_ahead:+.0f}"
        text = _(
            "By %(seconds)s seconds. Consumers refuse signatures whose time is off by "
            "more than five minutes; synchronise both machines' clocks."
        )
        title = _("The clock of %(host)s differs from the database's")
        key = f"notify.clock:{host}"
        condition = alerts.Condition.of(key, title, text, host=host, seconds=seconds)
        was_settled = alerts.reconcile([condition.key], [condition] if is_wrong else [])
        self._clock_is_settled = was_settled and not is_wrong

    def get(self, subscription_id: int) -> Subscription | None:
        return self.known.get(subscription_id)

    def is_unusable(self, subscription_id: int) -> bool:
        """True if the subscription exists, but cannot be used until a person corrects it."""
        return self._rows.is_unusable(subscription_id)

    def has_ended(self, subscription_id: int) -> bool:
        """True if no sender will send to the subscription any more: it was deleted or discarded, or
        a listener fetches its deliveries."""
        subscription = self.get(subscription_id)
        if subscription is None:
            return not self.is_unusable(subscription_id)
        return subscription.status == BizReceive.Status.DISCARDED or subscription.is_listened

    def listened(self) -> Mapping[int, Subscription]:
        """Id → subscription whose deliveries a listener fetches."""
        return self.known.listened

    def by_queue(self) -> Mapping[str, Subscription]:
        """Name of the queue → subscription."""
        return self.known.by_queue


def connect_signals() -> None:
    """Wake the senders when a consumer or a subscription is saved. Call it once in a process."""
    for model in (Receive, BizReceive):
        post_save.connect(_send_signal, sender=model, dispatch_uid=f"{model.__name__} saved")


def _send_signal(using: str, **_arguments: Any) -> None:
    transaction.on_commit(signals.SUBSCRIPTIONS.send, using=using)


def from_row(row: BizReceive) -> Subscription:
    """The subscription of a row. Raises one of UNUSABLE."""
    keys = row.receive.keys()
    try:
        payload_filter.compiled(row.filter)
    except ValidationError as error:
        raise ValueError("; ".join(error.messages)) from None
    url, networks, own_host = row.receive.url, row.receive.networks, ""
    if sandbox.is_sandbox(url) and settings.SANDBOX:
        (url, own_host), networks = sandbox.address(row.pk, keys[0]), []
    return Subscription(
        id=row.pk,
        biz_id=row.biz_id,
        queue=orders.queue_name(row.biz_id, row.receive_id),
        status=row.status,
        url=url,
        keys=tuple(keys),
        header_prefix=row.receive.header_prefix,
        headers=tuple(row.receive.headers.items()),
        networks=tuple(ip_network(network) for network in networks),
        # A request with a longer timeout might outlast its lease, and would never be sent.
        timeout=min(row.timeout or settings.NOTIFY_TIMEOUT_SECONDS, limits.longest_timeout()),
        schedule=waits(row.schedule, row.attempts_limit),
        in_flight_limit=row.in_flight_limit,
        rate_limit=row.rate_limit or 0.0,
        failing_since=row.failing_since,
        own_process=row.own_process,
        format=row.format,
        log_answers=row.log_answers,
        source=formats.source(row.biz.name),
        is_listened=row.receive.is_listened,
        own_host=own_host,
    )


def waits(schedule: Sequence[Any], attempts_limit: int | None) -> tuple[float, ...]:
    """The seconds between attempts: the schedule, shortened to `attempts_limit` attempts, or
    lengthened with its last wait."""
    seconds = tuple(float(wait) for wait in schedule)
    if attempts_limit is None:
        return seconds
    last_wait = seconds[-1:] or (DEFAULT_SCHEDULE[0],)
    missing_count = max(0, attempts_limit - 1 - len(seconds))
    return seconds[: attempts_limit - 1] + last_wait * missing_count
