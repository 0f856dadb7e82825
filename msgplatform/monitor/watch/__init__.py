"""The watch over the platform itself: silent programs, unavailable servers, work that waits.

Every daemon runs the watch beside its loop, so that running programs report dead ones. The daemon
that holds the lease looks for all. Without the work Redis nobody can hold the lease, and each
daemon reports the unavailable Redis. An alert is a row, so that `/metrics` and the log, not alerts,
report an unavailable database.

This module has the kinds of the platform's own alerts.
"""

SILENT, REDIS, BACKLOG = "platform.silent", "platform.redis", "platform.backlog"
WATCH, DISK, MEMORY = "platform.watch", "platform.disk", "platform.memory"
IDS = "platform.ids"
WRITERS, GALERA = "platform.writers", "platform.galera"
RELEASES = "platform.releases"
AUDIT = "platform.audit"
TRACES = "platform.traces"
CHANNEL = "platform.channel"  # raised by `msgplatform/company/alerting/outbox.py`
SIGN_IN = "platform.signin"  # raised by `msgplatform/company/single_sign_on/trouble.py`
ERASURE = "platform.erasure"  # raised by `msgplatform/company/person_data/runner.py`
PLATFORM = frozenset({
    SILENT, REDIS, BACKLOG, WATCH, DISK, MEMORY, IDS, WRITERS, GALERA, AUDIT, TRACES, CHANNEL,
    SIGN_IN, ERASURE, RELEASES,
})  # fmt: skip
FAILURES = "failures"  # of a flow: notify.failures
LOOK_SECONDS = 15.0


def key(kind: str, subject: str) -> str:
    """The key of an alert of this kind; `subject` is text, such as a name or an id."""
    return f"{kind}:{subject}"
