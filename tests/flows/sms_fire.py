"""SMS under fire: each kill at a moment at which the killed process has work in its hands."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.lifecycle import keys
from tests.cluster import WEB
from tests.flows import sms_traffic
from tests.flows.sms_business import Business
from tests.flows.sms_cluster import ROLES, SENDERS, SmsCluster
from tests.flows.sms_duties import Duty, duties

# Seconds. What is waited for comes much earlier, unless the machine is very busy.
_PATIENCE = 600.0
_CATCH_SECONDS = 30.0
_STOPPED_SECONDS = 20.0
_BREATH_SECONDS = 1.0
_HOLD_BACK_SECONDS = 5.0
_SPIN_SECONDS = 0.001  # to see a moment
_LOOK_SECONDS = 0.02  # to see what lasts: a look at Redis or at all files takes milliseconds
_FEED_SECONDS = 0.2
_STUCK_MILLISECONDS = 8000
_PLENTY = 3


@dataclass
class Fire:
    """Kills, and says what each of them hit."""

    cluster: SmsCluster
    business: Business
    least_in_redis: int  # messages, when it is killed
    mos: list[tuple[str, str, str, str]] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    _stopped: set[str] = field(default_factory=set)

    def kill(self, role: str) -> None:
        """Stopped until work lies before it, let go, killed as soon as it works."""
        duty = duties(self.cluster, self.business)[role]
        others = [name for name in SENDERS if role in SENDERS and name != role]
        self._stop(*others)
        waited, held = self._catch(role, duty)
        self.cluster.kill(role)
        self._stopped.discard(role)
        self._let_go(*others)
        self.cluster.start(role)
        self._say(role, f"{waited} waiting, {held} in hand")

    def kill_redis(self, role: str, is_stuck: bool) -> None:
        """redis-server in traffic, or stuck with writes that it did not take; and one of those that
        need it while it is away."""
        owes, submitted, held = self.cluster.books["city"].owed, self._submitted, self._held
        self._stop("receiver")
        self.feed_until(lambda: held() >= self.least_in_redis, "messages in Redis")
        if is_stuck:
            self.feed_until(self._is_stuck, "calls that wait for Redis", always=True)
        self.feed_until(lambda: owes() > 0 and submitted() > 0, "Submits and Reports on their way")
        count, submits = held(), submitted()
        self.cluster.sms_server.kill()
        self._let_go("receiver")
        unknown, waits = self.business.unknown(), self._waits(role)
        self.business.more()
        # Whoever answers before it is safe has answered by now.
        self._until(lambda: self.business.unknown() > unknown, "a request that nobody can keep")
        self._until(lambda: role == WEB or self._waits(role) > waits + 1, f"{role} to wait")
        self.cluster.kill(role)
        self.cluster.sms_server.start()
        self.cluster.start(role)
        how = "stuck, " if is_stuck else ""
        self._say("redis", f"{how}{count} messages in it, {submits} Submits without a response")
        self._say(role, "while Redis was away")

    def die_at(self, places: Mapping[str, str]) -> None:
        """Until each of these roles died at its place, by itself; no other sender does its work."""
        self.cluster.kill("sender-b")
        for role, failpoint in places.items():
            self.cluster.kill(role)
            self.cluster.start(role, failpoint=failpoint)
        dying = dict(places)
        while dying:
            self.feed_until(lambda: any(map(self.cluster.died, dying)), f"deaths of {dying}", 1.0)
            for role in [name for name in dying if self.cluster.died(name)]:
                assert self.cluster.processes[role].returncode == -signal.SIGKILL
                print(f"{role} died at {dying.pop(role)}")
                self.cluster.start(role)
        self.cluster.start("sender-b")

    # -- traffic ---------------------------------------------------------------------------------
    def more(self, always: bool = False) -> None:
        """A text from a user, and another share from every business system; with plenty of
        messages on their way only if `always`, or they would still be so long after the last kill.
        """
        if always or self._held() < _PLENTY * self.least_in_redis:
            self.business.more()
        if "city" not in self._stopped:
            (mo,) = sms_traffic.mos(len(self.mos), 1)
            self.cluster.deliver("city", *mo[1:])
            self.mos.append(mo)

    def feed_until(
        self,
        condition: Callable[[], object],
        what: str,
        every: float = _FEED_SECONDS,
        always: bool = False,
    ) -> None:
        """More and more traffic, until this comes true."""
        if not self._feed(condition, _PATIENCE, every, always):
            raise AssertionError(f"with all this traffic there were no {what}")

    def _feed(
        self,
        condition: Callable[[], object],
        seconds: float,
        every: float = _FEED_SECONDS,
        always: bool = False,
    ) -> bool:
        began = time.monotonic()
        while (waited := time.monotonic() - began) < seconds:
            self.more(always or waited > _HOLD_BACK_SECONDS)
            if self._comes_true(condition, every, _LOOK_SECONDS):
                return True
        return False

    # -- moments ---------------------------------------------------------------------------------
    def _catch(self, role: str, duty: Duty) -> tuple[int, int]:
        """Stopped with something in hand: what waited before it, and how much it has."""

        def has_work() -> bool:
            return duty.waiting() >= duty.least

        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if duty.waits:
                self._stop(role)
            if not has_work() and not self._feed(has_work, _STOPPED_SECONDS, always=role == WEB):
                # Stopped inside a transaction, perhaps: on SQLite nobody else goes on then.
                self._let_go(role)
                self._comes_true(has_work, _BREATH_SECONDS)
                continue
            waited, before, held = duty.waiting(), duty.moves(), duty.in_hand()
            if duty.waits:
                self._let_go(role)
                # With all its work done it moved and came back between two looks.
                self._comes_true(
                    lambda before=before: duty.moves() != before or not duty.waiting(),
                    _CATCH_SECONDS,
                )
            self._stop(role)
            held = duty.in_hand() - (held if duty.fills else 0)
            if held > 0:
                return waited, held
            self._let_go(role)
        raise AssertionError(f"{role} never had anything in hand")

    def _comes_true(
        self, condition: Callable[[], object], seconds: float, pause: float = _SPIN_SECONDS
    ) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
        return True

    def _until(self, condition: Callable[[], object], what: str) -> None:
        self.cluster.wait_until(condition, what)

    def _stop(self, *names: str) -> None:
        for name in names:
            self.cluster.pause(name)
            self._stopped.add(name)

    def _let_go(self, *names: str) -> None:
        for name in names:
            self.cluster.resume(name)
            self._stopped.discard(name)

    # -- what there is ---------------------------------------------------------------------------
    def _is_stuck(self) -> bool:
        """Redis, which takes no writes for a while: intake waits for it, and all daemons but the
        receiver, which stands still."""
        self.cluster.sms.client_pause(_STUCK_MILLISECONDS, all=False)
        return int(self.cluster.sms.info("clients")["blocked_clients"]) >= len(ROLES)

    def _submitted(self) -> int:
        return int(self.cluster.sms.scard(keys.SUBMITED))

    def _held(self) -> int:
        return sum(1 for _ in self.cluster.sms.scan_iter(match=keys.PREFIX + "mt:*", count=1000))

    def _waits(self, role: str) -> int:
        """How often it said that it waits for somebody who is away."""
        return self.cluster.said(role).count("waiting")

    def _say(self, role: str, what: str) -> None:
        self.kills[role] += 1
        print(f"kill {role}: {what}")
