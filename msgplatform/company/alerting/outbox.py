"""Messages that are due are claimed, sent by child processes (`send.py`), retried and ended.

A child is started without waiting for it, and has a time limit. A test is sent at once by the
process that was asked for it. The alert about a failing channel is sent over the other channels
(`planning.py`).
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_noop

from msgplatform.company.alerting import texts
from msgplatform.company.alerting.models import AlertChannel, AlertMessage, AlertNotice
from msgplatform.core import alerts, logging, outbound
from msgplatform.core.alerts import Condition, moment
from msgplatform.core.errors import Unavailable
from msgplatform.core.lazy_text import lazy_message
from msgplatform.monitor.watch import CHANNEL, key

log = logging.get(__name__)
State = AlertMessage.State

# Seconds. A send that takes longer counts as failed.
MAX_SECONDS = 20
# Maximum of children that check addresses: each loads apprise, for a second of a core that
# messages need.
_checks = threading.BoundedSemaphore(2)
MAX_CHILDREN = 4  # maximum of concurrent sends of one process
LEASE = timedelta(seconds=MAX_SECONDS + 30)
# Pauses after each failed attempt. The last pause is repeated until the message is given up.
WAITS = tuple(timedelta(seconds=wait) for wait in (10, 30, 60, 300, 900, 1800, 3600))
# Number of attempts in a row that fail before there is an alert about the channel.
FAILING_AFTER = 2
CALL_SECONDS = 15  # of a test, and of the call of a heartbeat


class Outcome(msgspec.Struct, frozen=True):
    """`error` is a sentence, without secrets of the address. `details` has what a check found."""

    is_ok: bool
    error: str = ""
    is_final: bool = False  # True if the service says that a repetition cannot help
    details: Mapping[str, Any] | None = None


class Child:
    """One order in a process of its own."""

    def __init__(self, action: str, url: str, seconds: int = MAX_SECONDS, **order: Any) -> None:
        """Start it. Raises OSError."""
        self._seconds = seconds
        self._outcome: Outcome | None = None
        content = {
            **order, "action": action, "url": url, "seconds": seconds,
            "allow": list(map(str, settings.OUTBOUND_ALLOW)), "proxy": settings.OUTBOUND_PROXY,
            "state_dir": str(settings.STATE_DIR),
        }  # fmt: skip
        # Only the platform's own settings for outbound traffic, and no other variables.
        names = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHASHSEED", "COVERAGE_PROCESS_START")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= {"NO_PROXY": "", "PYTHONDONTWRITEBYTECODE": "1"}
        if settings.OUTBOUND_PROXY:
            environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), settings.OUTBOUND_PROXY)
        if settings.OUTBOUND_CA_FILE:
            ca_names = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
            environment |= dict.fromkeys(ca_names, str(settings.OUTBOUND_CA_FILE))
        self._deadline = time.monotonic() + seconds + 5  # longer than the child's own alarm
        self._process = subprocess.Popen(
            [sys.executable, "-m", "msgplatform.company.alerting.send"],
            cwd=settings.BASE_DIR,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the program's Ctrl-C must not stop a message in flight
        )
        if self._process.stdin:
            # An order above a pipe's buffer (64 KiB) waits until the child has started.
            self._process.stdin.write(json.dumps(content).encode())
            self._process.stdin.close()
            self._process.stdin = None

    def poll(self) -> Outcome | None:
        """Its outcome, however often it is asked for; None while it runs."""
        if self._process.poll() is None:
            if time.monotonic() < self._deadline:
                return None
            self._process.kill()
        return self._read_outcome()

    def wait(self) -> Outcome:
        """Wait in this thread for its outcome, at most for its time limit."""
        try:
            self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._read_outcome()

    def _read_outcome(self) -> Outcome:
        # Kept, because its output can be read once, and storing the outcome may fail.
        if self._outcome is None:
            output, _error = self._process.communicate()
            try:
                answer = json.loads(output)
                # Half an emoji, where a service cut its text, cannot be stored.
                error = answer["error"].encode(errors="replace").decode()
                self._outcome = Outcome(answer["ok"], error, answer.get("is_final", False), answer)
            except (ValueError, KeyError):
                self._outcome = Outcome(False, f"no answer within {self._seconds} seconds")
        return self._outcome


def check(url: str) -> Outcome:
    """Check without traffic whether messages can be sent to this address. `details` has the
    `service` or the `problem`. Raises Unavailable if too many checks wait already."""
    if not _checks.acquire(blocking=False):  # a thread that waits serves nobody else
        raise Unavailable(_("Other channels are being checked; try again in a moment."))
    try:
        return Child("check", url).wait()
    finally:
        _checks.release()


class Outbox:
    """The messages that this process sends."""

    def __init__(self) -> None:
        self._me = uuid.uuid4().hex
        self.children: dict[int, tuple[AlertMessage, Child]] = {}  # by channel: one at a time

    def collect(self, now: datetime) -> None:
        """Store the outcomes of sends that have ended."""
        for channel_id, (message, child) in list(self.children.items()):
            if (outcome := child.poll()) is not None:
                store(message, outcome, now)
                del self.children[channel_id]

    def start(self, now: datetime) -> None:
        """Start sends of due messages."""
        rows = AlertMessage.objects.filter(
            Q(lease_until=None) | Q(lease_until__lt=now),
            state=State.WAITING, due_at__lte=now, channel__enabled=True,
        ).exclude(channel__in=list(self.children))  # fmt: skip
        for message in rows.order_by("due_at", "id").select_related("channel")[:50]:
            if len(self.children) >= MAX_CHILDREN:
                break
            if message.channel_id in self.children:
                continue
            same_rows = AlertMessage.objects.filter(
                pk=message.pk, state=State.WAITING, claim=message.claim, due_at=message.due_at
            )
            message.claim = f"{self._me}-{message.attempts % 1000}"
            if not same_rows.update(claim=message.claim, lease_until=now + LEASE):
                continue
            # Later news that was sent while this message failed must not be undone by it. A repeat
            # replaces no beginning: the end goes only where the beginning was not dropped.
            newer_rows = AlertNotice.objects.filter(
                channel=message.channel_id, alert__key=OuterRef("alert__key"),
                pk__gt=OuterRef("pk"), message__state=State.SENT,
            ).exclude(event=AlertNotice.Event.REPEATED)  # fmt: skip
            notices = list(message.notices.filter(~Exists(newer_rows)).select_related("alert"))
            is_summary = message.kind == AlertMessage.Kind.SUMMARY
            # Its alerts were deleted, or their news was sent, or the channel became a heartbeat
            # meanwhile.
            if message.channel.is_heartbeat or not (is_summary or notices):
                AlertMessage.objects.filter(pk=message.pk, claim=message.claim).update(
                    state=State.DROPPED, claim="", lease_until=None
                )
                continue
            if is_summary:
                text = texts.of_paragraphs(message.channel, message.title, message.text)
            else:
                text = texts.of_notices(message.channel, notices)
            message.title, message.text = text.title, text.plain
            try:
                child = Child("send", message.channel.url, **msgspec.structs.asdict(text))
            except Exception as error:  # noqa: BLE001 - no process, or an unreadable address
                store(message, Outcome(False, str(error)[:500]), now)
                continue
            self.children[message.channel_id] = (message, child)


def store(message: AlertMessage, outcome: Outcome, now: datetime) -> None:
    """Store the outcome of an attempt, unless another process has taken over the message."""
    values: Mapping[str, object]
    row = AlertMessage.objects.filter(pk=message.pk, claim=message.claim)
    if outcome.is_ok:
        values = {"state": State.SENT, "sent_at": now, "error": ""}
    else:
        wait = WAITS[min(message.attempts, len(WAITS) - 1)]
        # Read it again: an alert may have joined the message after this process read it.
        give_up_at = row.values_list("give_up_at", flat=True).first()
        is_over = now + wait > (give_up_at or message.created_at + message.GIVE_UP)
        values = {"error": outcome.error[:500], "due_at": now + wait,
                  **({"state": State.FAILED} if is_over else {})}  # fmt: skip
        log.warning("alert_not_sent", channel=message.channel.name, why=outcome.error[:200])
    row.update(
        attempts=F("attempts") + 1, claim="", lease_until=None, title=message.title[:300],
        text=message.text, **values,
    )  # fmt: skip
    note_outcome(message.channel_id, outcome, now)


def note_outcome(channel_id: int, outcome: Outcome, now: datetime) -> None:
    """Store whether the channel works, for its page and for the alert about it."""
    row = AlertChannel.objects.filter(pk=channel_id)
    if outcome.is_ok:
        row.update(failing_since=None, failures_in_row=0, last_error="", last_sent_at=now)
        return
    min_failures = FAILING_AFTER if outcome.is_final else 1
    row.update(
        failing_since=Coalesce("failing_since", now),
        failures_in_row=Greatest(F("failures_in_row") + 1, min_failures),
        last_error=outcome.error[:500],
    )


def send_test(channel: AlertChannel) -> Outcome:
    """Send a test to a stored channel, or call its address, in at most 20 seconds. The list of sent
    alerts shows the test. Raises Undecryptable."""
    if outbound.is_off():
        return Outcome(False, str(lazy_message(outbound.OFF)))
    now = timezone.now()
    text = texts.test(channel, now)
    if channel.is_heartbeat:
        child = Child("call", channel.url, seconds=CALL_SECONDS)
    else:
        child = Child("send", channel.url, seconds=CALL_SECONDS, **msgspec.structs.asdict(text))
    outcome = child.wait()
    AlertMessage.objects.create(
        channel=channel, kind=AlertMessage.Kind.TEST,
        state=State.SENT if outcome.is_ok else State.FAILED,
        created_at=now, due_at=now, attempts=1,
        sent_at=timezone.now() if outcome.is_ok else None,
        error=outcome.error[:500], title=text.title, text=text.plain,
    )  # fmt: skip
    note_outcome(channel.pk, outcome, timezone.now())
    return outcome


def report_failing(channels: Iterable[AlertChannel]) -> None:
    """Make the open alerts match the channels that fail now."""
    conditions = [
        Condition.of(
            key(CHANNEL, str(row.pk)),
            gettext_noop("Alerts do not reach the channel %(name)s"),
            gettext_noop(
                "%(shown)s has failed since %(since)s: %(error)s. What waits for it is tried "
                "again for 24 hours."
            ),
            name=row.name,
            shown=row.shown,
            since=moment(row.failing_since) if row.failing_since else "",
            error=row.last_error.rstrip("."),
        )
        for row in channels
        if is_failing(row)
    ]
    alerts.reconcile([CHANNEL], conditions)


def is_failing(channel: AlertChannel) -> bool:
    """True if people should hear that this channel does not work."""
    return channel.enabled and channel.failures_in_row >= FAILING_AFTER
