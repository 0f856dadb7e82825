"""The kinds of the platform's own alerts."""

from __future__ import annotations

SILENT, REDIS, BACKLOG = "platform.silent", "platform.redis", "platform.backlog"
WATCH, DISK, MEMORY = "platform.watch", "platform.disk", "platform.memory"
IDS = "platform.ids"
WRITERS, GALERA = "platform.writers", "platform.galera"
AUDIT = "platform.audit"
TRACES = "platform.traces"
CHANNEL = "platform.channel"  # raised by `msgplatform/company/alerting/outbox.py`
SIGN_IN = "platform.signin"  # raised by `company/signing_in`
ERASURE = "platform.erasure"  # raised by `msgplatform/company/person_data/erasure_alert.py`
PLATFORM = frozenset({
    SILENT, REDIS, BACKLOG, WATCH, DISK, MEMORY, IDS, WRITERS, GALERA, AUDIT, TRACES, CHANNEL,
    SIGN_IN, ERASURE,
})  # fmt: skip
FAILURES = "failures"  # of a flow: notify.failures
LOOK_SECONDS = 15.0


def key(kind: str, which: str) -> str:
    return f"{kind}:{which}"
