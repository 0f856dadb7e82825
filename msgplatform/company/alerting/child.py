"""The child process that sends (`send.py`): started without waiting for it, with a time limit."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from django.conf import settings
from django.utils.translation import gettext as _

from msgplatform.core.errors import Unavailable

# Seconds. A send that takes longer counts as failed.
MAX_SECONDS = 20
# Maximum of children: each loads apprise, for a second of a core that messages need.
_checks = threading.BoundedSemaphore(2)


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
            # The order is smaller than a pipe's buffer (64 KiB), so that the write does not wait.
            self._process.stdin.write(json.dumps(content).encode())
            self._process.stdin.close()
            self._process.stdin = None

    def poll(self) -> Outcome | None:
        """Its outcome; None while it runs."""
        if self._process.poll() is None:
            if time.monotonic() < self._deadline:
                return None
            self._process.kill()
        return self._outcome()

    def wait(self) -> Outcome:
        """Wait in this thread for its outcome, at most for its time limit."""
        try:
            self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._outcome()

    def _outcome(self) -> Outcome:
        output, _error = self._process.communicate()
        try:
            answer = json.loads(output)
            return Outcome(answer["ok"], answer["error"], answer.get("is_final", False), answer)
        except (ValueError, KeyError):
            return Outcome(False, f"no answer within {self._seconds} seconds")


def check(url: str) -> Outcome:
    """Check without traffic whether messages can be sent to this address. `details` has the
    `service` or the `problem`. Raises Unavailable if too many checks wait already."""
    if not _checks.acquire(blocking=False):  # a thread that waits serves nobody else
        raise Unavailable(_("Other channels are being checked; try again in a moment."))
    try:
        return Child("check", url).wait()
    finally:
        _checks.release()
