"""SMS as a whole: REST in, Submit, response, Report, the business system, the archive."""

import sys
from collections.abc import Sequence

from bench.gateway.sms_kannel import Kannel
from bench.gateway.sms_side import Sms
from bench.harness.measure import Side
from bench.harness.processes import Program
from gateway.models import SgipMt

NAME = "sms"
ORDER = 90
ABOUT = (
    "The whole way of a short message: REST batches of 100 over 8 connections, Submit, response, "
    "Report, event to the business system, which takes Reports in batches, archive, by one process "
    "of each role; the simulated "
    "SMG answers at once and takes 8 connections (the naive ones use one, for they wait for each "
    "response). Each message has a text, a recipient "
    "and an idempotency key of its own, so that none share a Submit. A message counts when it is "
    "in the archive with its ending and the business system has heard of it. The load generator "
    "holds back while 4,000 are accepted and not yet counted; the clock starts when the first "
    "4,000 are through. `load generator` is its CPU with that of the sink and of the SMG."
)
REASONS = {
    "kannel": (
        "Kannel has no archive, no idempotency key and no signature, and keeps what a receipt "
        "belongs to in memory. The SMS Redis, one thread, is our limit."
    ),
}


class SingleReports(Sms):
    """The same for a business system that takes an event for each message."""

    name = "single-reports"
    takes_batches = False


class Naive(SingleReports):
    """What one would write first on the same keys: a DRF view with a Redis call a step and message,
    a sender that sends a Submit and waits for its response, a receiver that takes a Report at a
    time, a forwarder that writes and POSTs an event at a time, a pump that saves a row at a time.
    It leaves the same rows as `single-reports`, in Notify's tables and in the archive; see
    `bench/references/naive_sms`.
    """

    name = "naive"
    rows: Sequence[str] = ("--rows",)

    def roles(self) -> Sequence[Program]:
        package = "bench.references.naive_sms"
        gateway, url = self._cast.gateway.pk, self.ground.sink_url
        argv = [
            *(sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1"),
            *("--port", str(self.ground.web_port), "--blocking-threads", "16", "--no-ws"),
            f"{package}.wsgi:application",
        ]
        more = {"DJANGO_SETTINGS_MODULE": f"{package}.settings", "BENCH_GATEWAY": str(gateway)}
        return [
            self.ground.module("pump", f"{package}.pump", *self.rows),
            self.ground.module("forwarder", f"{package}.forwarder", url, *self.rows),
            self.ground.module("receiver", f"{package}.receiver", self.ground.sms_port),
            self.ground.module("sender", f"{package}.sender", gateway, self.ground.smg_port),
            Program("web", argv, {**self.ground.environment, **more}),
        ]

    def archived(self) -> int:
        return SgipMt.objects.count()


class Least(Naive):
    """The same without Notify: an event is POSTed at once, without a row, so that nobody can send
    it again; and the archive has no rows for Submits and Reports.
    """

    name = "naive-least"
    rows = ()

    def check_rows(self, expected: int) -> None:
        """Nothing to check: it has no rows but those of messages."""


def sides() -> list[type[Side]]:
    return [Sms, SingleReports, Naive, Least, Kannel]
