"""Our side of the bench `sms`: the whole way of a short message, by our programs."""

import sys
from collections.abc import Sequence

from django.db.models import Sum

from bench.gateway import sms_rows
from bench.harness.ground import ROOT
from bench.harness.measure import Side
from bench.harness.processes import Crew, Program
from bench.harness.programs.progress import Progress
from bench.notify.notify_rows import same
from bench.notify.sender import sink
from gateway.models import SgipMtPart, SgipReport, SmsAccount
from gateway.monitor.counters import FLOW
from msgplatform.models import MinuteCounter
from notify.models import Attempt, BizMsg, ReceiveMsg

BATCH = 100
CONNECTIONS = 8
AT_MOST = 4_000  # messages accepted and not yet counted
_REST_SECONDS = 120.0  # without progress, when what is left is lost


class Sms(Side):
    """Our processes, those of Notify among them, beside database, Redis, SMG, load and sink."""

    poll_seconds = 0.05
    takes_batches = True  # of Reports

    def prepare(self) -> None:
        # Less for a short stretch, as tests have it: the clock starts when so many are through.
        self._at_most = max(2 * BATCH, min(AT_MOST, int(AT_MOST / 5 * self.seconds)))
        sms_rows.empty()
        self._cast = sms_rows.cast(self.ground.sink_url, self.ground.smg_port)
        SmsAccount.objects.update(report_batches=self.takes_batches)
        self._sent = Progress(self.ground.file("load.progress"))
        self._done = Progress(self.ground.file("done.progress"))
        self._heard = Progress(self.ground.file("sink.progress"))
        self._bodies = self.ground.file("sink.seen")
        self._accepted = self.ground.file("load.accepted")
        self._log = self.ground.file("smg-accepted.log")

    def programs(self) -> Sequence[Program]:
        one_of_each = ("--count", '"error_code"')
        subscriber = sink(self.ground, self._heard, self._bodies, "--bodies", *one_of_each)
        argv = [
            *(sys.executable, str(ROOT / "manage.py"), "run_smg_simulator"),
            *("--port", str(self.ground.smg_port), "--log", str(self._log)),
            *("--sp-port", str(self.ground.sms_port), "--smg-login-name", sms_rows.SMG_LOGIN),
        ]
        smg = Program("smg", argv, self.ground.environment, load=True)
        load = self.ground.module(
            "load", "bench.gateway.sms_load",
            *("--port", self.ground.web_port, "--token", self._cast.token),
            *("--prefix", self.stretch, "--connections", CONNECTIONS, "--batch", BATCH),
            *("--progress", self._sent.file, "--accepted", self._accepted),
            *("--behind", self._done.file, "--at-most", self._at_most),
            load=True,
        )  # fmt: skip
        return [subscriber, smg, *self.roles(), load]

    def roles(self) -> Sequence[Program]:
        """The measured programs, the last step first, so that each has somebody to hand on to."""
        notify = [self.ground.daemon(f"run_{role}") for role in ("marker", "sender", "maker")]
        own = ("run_data_pump", "run_report_forwarder", "run_sms_receiver", "run_sms_sender")
        return [*notify, *map(self.ground.daemon, own), self.ground.web()]

    def archived(self) -> int:
        """Messages with an ending, by the minute counters that the archive's transactions write."""
        rows = MinuteCounter.objects.filter(
            flow=FLOW, subject=self._cast.account.pk, name="delivered"
        )
        return int(rows.aggregate(total=Sum("value"))["total"] or 0)

    def done(self) -> int:
        # A message needs both; the load generator reads this number, to hold back.
        self._done.count = min(self.archived(), self._heard.count)
        return self._done.count

    def count(self) -> int:
        """0 until the first burst is through, because only then the rate is steady."""
        done = self.done()
        return done if done >= self._at_most else 0

    def finish(self, crew: Crew) -> None:
        self.await_rest(crew, lambda: self._sent.count - self.done(), _REST_SECONDS)

    def check(self, crew: Crew) -> None:
        accepted = sms_rows.read_accepted(self._accepted)
        same(len(accepted), self._sent.count, "accepted messages")
        sms_rows.check_submitted(self._log, accepted)
        sms_rows.check_heard(self._bodies, accepted, self.stretch)
        sms_rows.check_archive(accepted, self.stretch)
        sms_rows.check_no_keys()
        self.check_rows(len(accepted))

    def check_rows(self, expected: int) -> None:
        """A row for each Submit, Report, event and attempt."""
        for model, column, count in (
            (SgipMtPart, "mt_id", expected), (SgipReport, "mt_id", expected),
            (ReceiveMsg, "msg_id", self.event_count(expected)),
            (Attempt, "copy_id", self.event_count(expected)),
        ):  # fmt: skip
            rows = model._default_manager.values_list(column, flat=True)
            same(len(set(rows)), count, f"messages in {model._meta.db_table}")
            same(len(rows), count, f"rows of {model._meta.db_table}")
        delivered = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.DELIVERED)
        same(delivered.count(), self.event_count(expected), "events marked as delivered")

    def event_count(self, message_count: int) -> int:
        """The number of events for so many messages."""
        return BizMsg.objects.count() if self.takes_batches else message_count
