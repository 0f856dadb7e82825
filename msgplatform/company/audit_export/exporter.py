"""The exporter: hands over entries of the audit log in their order, each at least once.

    entry without a line ── signed ──▶ pending in the row of AuditExport ── handed over ──▶ done

Entries get their numbers in the transaction that stores the signed lines as pending. Lines that may
have been handed over by a process that died are handed over again, unchanged, and a verifier drops
them. An entry whose transaction commits late gets a later number: nothing depends on the order of
ids. One process at a time has the lease; what is not handed over waits in the database.
"""

import socket
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, assert_never
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction
from django.utils.translation import gettext_noop as _

from msgplatform.checks import NEW_KEY
from msgplatform.company.audit_export import address, lines
from msgplatform.company.audit_export.address import Address
from msgplatform.company.audit_export.models import AuditExport
from msgplatform.core import alerts, logging, outbound
from msgplatform.core.alerts import AlertEvent
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.data import claims, sql, transactions
from msgplatform.core.errors import Unavailable
from msgplatform.core.failpoints import failpoint
from msgplatform.core.http import engine as http
from msgplatform.core.http.addresses import bracketed
from msgplatform.core.rates.backoff import Backoff
from msgplatform.jobs.upkeep import Upkeep
from msgplatform.models import AuditLog
from msgplatform.monitor.watch import AUDIT

log = logging.get(__name__)

TIMEOUT_SECONDS = 15.0
EVERY_SECONDS = 2.0
LEASE_SECONDS = 60.0  # lines of a killed exporter wait so long; a slower target may get lines twice
MAX_PAUSE_SECONDS = 30.0
_MAX_LINES = 100  # handed over together
_MAX_BYTES = 512 * 1024
CONTENT_TYPE = "application/x-ndjson"
# Facility 13 (log audit), severity 6 (informational): RFC 5424, §6.2.1.
_PRIORITY = 13 * 8 + 6
_NAME = "msgplatform-audit"


class NotTaken(Unavailable):
    """The target did not take the lines; the text says why, without secrets."""


def hand_over(signed_lines: Sequence[str], target: Address, token: str = "") -> None:
    """Hand lines over to an address; `token` is a webhook's. Raises NotTaken."""
    text, name = "".join(f"{line}\n" for line in signed_lines), target.place
    try:
        match target.kind:
            case "stdout":
                name = "standard output"
                sys.stdout.write(text)
                sys.stdout.flush()
            case "socket":  # a datagram for each line
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                    connection.settimeout(TIMEOUT_SECONDS)
                    connection.connect(target.place)
                    for line in signed_lines:
                        connection.send(f"<{_PRIORITY}>{_NAME}: {line}".encode())
            case "server":
                name = f"{bracketed(target.place)}:{target.port}"
                # RFC 5424, §6: no time, process or structured data: each line has its own.
                head = f"<{_PRIORITY}>1 - {socket.gethostname()} {_NAME} - - -"
                frames = "".join(f"{head} {line}\n" for line in signed_lines)
                place = target.place, target.port
                with socket.create_connection(place, TIMEOUT_SECONDS) as connection:
                    connection.sendall(frames.encode())
                    # It sends no acknowledgement: once it has read all, it closes its side.
                    connection.shutdown(socket.SHUT_WR)
                    deadline = time.monotonic() + TIMEOUT_SECONDS
                    while connection.recv(4096):
                        if time.monotonic() > deadline:
                            raise TimeoutError("the server does not close the connection")
            case "webhook":
                name = str(urlsplit(target.place).hostname)
                headers = [("content-type", CONTENT_TYPE)]
                headers += [("authorization", f"Bearer {token}")] if token else []
                request = http.Request(target.place, text.encode(), headers, TIMEOUT_SECONDS)
                response = http.exchange(request, grace=5)
                if response is None:
                    raise NotTaken(f"{name}: no answer came")
                if not 200 <= response.status < 300:
                    raise NotTaken(f"{name}: {response.detail or f'HTTP {response.status}'}")
            case _:
                assert_never(target.kind)
    except OSError as error:
        raise NotTaken(f"{name}: {error.strerror or error}") from error


class Exporter:
    """Used by one thread. Raises ValueError for wrong settings."""

    def __init__(self) -> None:
        self._signer = lines.Signer(settings.AUDIT_SIGNING_KEYS[0])
        self._address = address.parse(settings.AUDIT_EXPORT)
        self._has_alert = True  # an earlier process may have raised the alert

    def turn(self) -> float | None:
        """Hand over some lines. Returns the seconds until the next turn when lines were taken or
        none wait, else None. Raises NotTaken."""
        defaults: dict[str, Any] = {"last_hash": lines.FIRST_PREVIOUS, "moved_at": sql.now}
        state, is_new = AuditExport.objects.get_or_create(id=1, defaults=defaults)
        oldest = AuditLog.objects.filter(line=None).order_by("id").first()
        if is_new or not (state.pending or oldest):
            if self._has_alert:
                alerts.resolve(AUDIT)
                self._has_alert = False
            return EVERY_SECONDS
        if outbound.is_off():
            return None
        claim = claims.claim(
            AuditExport.objects.order_by("lease_until", "id"), limit=1, lease=LEASE_SECONDS
        )
        if not claim.ids:  # another process exports; if it is frozen, the lease ends
            return None
        pending = transactions.retrying(lambda: _pending(self._signer, claim))
        failpoint("audit_before_hand_over")
        try:
            if pending:
                hand_over(pending.splitlines(), self._address, settings.AUDIT_EXPORT_TOKEN)
        except NotTaken as error:
            claims.release(AuditExport, claim)
            # The wait begins at the oldest entry's time or when the target last took lines,
            # whichever is later. The oldest entry may have been deleted.
            if state.pending:
                number = state.line - state.pending.count("\n")
                oldest = AuditLog.objects.filter(line=number).first()
            since = max(state.moved_at, oldest.at) if oldest else state.moved_at
            if sql.now() - since >= timedelta(minutes=settings.AUDIT_EXPORT_ALERT_MINUTES):
                self._has_alert = True
                event = AlertEvent.of(
                    AUDIT,
                    _("The audit log is not exported"),
                    _("%(why)s. Entries have waited since %(since)s; none is lost."),
                    why=str(error),
                    since=alerts.moment(since),
                )
                alerts.raise_event(event)
            raise
        if pending:
            failpoint("audit_after_hand_over")
        # Changes nothing if the lease was lost: the next holder hands the same lines over again.
        claims.release(AuditExport, claim, {"pending": "", "moved_at": sql.now()})
        return 0.0 if pending else None


def _pending(signer: lines.Signer, claim: claims.Claim) -> str:
    """The pending lines, else the next lines, which become pending. '' if there are no lines or the
    lease was lost."""
    with transaction.atomic(durable=True):
        state = AuditExport.objects.select_for_update().get(id=1)
        if state.claimed_by != claim.token or state.pending:
            return state.pending if state.claimed_by == claim.token else ""
        size = 0
        texts: list[str] = []
        entries: list[AuditLog] = []
        for entry in AuditLog.objects.filter(line=None).order_by("id")[:_MAX_LINES]:
            line = signer.line(state.line + 1, entry, state.last_hash)
            size += len(line)
            if texts and size > _MAX_BYTES:
                break
            state.line += 1
            state.last_hash = lines.hash_of(line)
            entry.line = state.line
            texts.append(line.decode())
            entries.append(entry)
        AuditLog.objects.bulk_update(entries, ["line"])
        state.pending = "\n".join(texts)
        state.save(update_fields=["line", "last_hash", "pending"])
    return state.pending


class ExportThread(Upkeep):
    """Runs the exporter beside a daemon's loop: a target that hangs holds up no work. While the
    export is off there is no thread, and an open alert about the export is resolved. Raises
    CommandError without a key: the program that exports needs it, and no other one."""

    def __init__(self) -> None:
        if settings.AUDIT_EXPORT and not settings.AUDIT_SIGNING_KEYS:
            raise CommandError(
                f"AUDIT_EXPORT is set, and AUDIT_SIGNING_KEY is not. Make a key: {NEW_KEY}, and "
                "give it to run_bulk as AUDIT_SIGNING_KEY, or write it into a file and name that "
                "as AUDIT_SIGNING_KEY_FILE."
            )
        self._loop: ThreadLoop | None = None
        self._pause = Backoff(first=0.2, factor=2.0, cap=MAX_PAUSE_SECONDS)
        self._is_target_away = False

    def start(self) -> None:
        if not settings.AUDIT_EXPORT:
            alerts.resolve(AUDIT)
            return
        self._exporter = Exporter()
        self._loop = ThreadLoop(
            "audit-export", self._turn, every=EVERY_SECONDS, longest_pause=MAX_PAUSE_SECONDS
        )
        self._loop.start()

    def _turn(self) -> float | None:
        """An unavailable target is no standstill of this program, since it has an alert itself:
        the log has one line when the target refuses, and one when lines are taken or gone."""
        try:
            pause = self._exporter.turn()
        except NotTaken as error:
            if not self._is_target_away:
                log.warning("audit_export_waits", why=str(error)[:200])
            self._is_target_away = True
            return self._pause.next()
        if self._is_target_away and pause is not None:
            log.info("audit_export_goes_on")
            self._is_target_away = False
            self._pause.reset()
        return pause

    def stop(self) -> None:
        if self._loop:
            self._loop.stop(wait=2.0)
