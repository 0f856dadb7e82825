"""What happens to the platform in a round: strikes in any order, one after another, while programs
that were frozen before come to life again."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from demo.sink_process import SinkProcess
from msgplatform.core.servers.private_server import PrivateServer
from tests.chaos.platform import PROGRAMS, ChaosPlatform, twin
from tests.cluster import LEASE_SECONDS, WEB

FROZEN_SECONDS = 1.5 * LEASE_SECONDS
HUNG_SECONDS = 6.0
FULL_SECONDS = 4.0
AWAY_SECONDS = 1.0
TEXT = "ready 😀"
STEPPED_SECONDS = 8.0
MAX_STEP = 45  # seconds that a clock steps
_PAUSE_SECONDS = 1.0
OPEN = """
import json
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.exclude(status=ReceiveMsg.Status.DELIVERED)
print(json.dumps([f"{name} {pk}" for name, pk in
                  rows.values_list("biz_receive__receive__name", "msg_id")]))
"""


@dataclass
class Storm:
    """Strikes. Each may repeat the deliveries that had arrived and were not marked."""

    platform: ChaosPlatform
    sinks: Mapping[str, SinkProcess]
    seed: int
    strikes: Counter[str] = field(default_factory=Counter)
    may_repeat: int = 0
    _counted: Counter[str] = field(default_factory=Counter)
    _frozen: dict[str, float] = field(default_factory=dict)  # program → when it goes on
    _stepped_until = 0.0  # when the clock is right again; monotonic seconds

    def blow(self, seconds: float) -> None:
        """Until the time is over and every kind of strike has been seen."""
        random_ = random.Random(self.seed)
        until = time.monotonic() + seconds
        kinds = self._kinds()
        waiting = list(kinds)
        random_.shuffle(waiting)
        while time.monotonic() < until or waiting:
            # Programs die and freeze more often than servers.
            kind = waiting.pop() if waiting else random_.choice([*kinds, *["kill", "freeze"] * 4])
            self._calm(time.monotonic())
            self._count()
            begun = time.strftime("%H:%M:%S")
            print(f"{begun} {kind}: {kinds[kind](random_)}", flush=True)
            self.strikes[kind] += 1
            self._count()
            time.sleep(_PAUSE_SECONDS)
        self._calm(float("inf"))
        self._count()

    def _kinds(self) -> dict[str, Callable[[random.Random], str]]:
        work, sms = self.platform.redis, self.platform.sms
        work_server, sms_server = self.platform.redis_server, self.platform.sms_server
        database = self.platform.database
        return {
            "kill": self._kill,
            "freeze": self._freeze,
            "flush": lambda _: self._flush(),
            "kill work Redis": lambda _: self._restart(work_server),
            "kill SMS Redis": lambda _: self._restart(sms_server),
            "kill database": lambda _: self._restart(database),
            "hang work Redis": lambda _: self._hang(work_server),
            "hang SMS Redis": lambda _: self._hang(sms_server),
            "hang database": lambda _: self._hang(database),
            "fill work Redis": lambda _: self._fill(work),
            "fill SMS Redis": lambda _: self._fill(sms),
            "refusing work Redis": partial(self._refuse, work),
            "refusing SMS Redis": partial(self._refuse, sms),
            "fill disk": lambda _: self._fill_disk(),
            "unstorable answers": lambda _: self._answer_unstorably(),
            "step clock": self._step_clock,
        }

    # -- strikes: each says what it hit ------------------------------------------------------------
    def _kill(self, random_: random.Random) -> str:
        name = random_.choice([WEB, *(set(PROGRAMS) - self._frozen.keys())])
        self.platform.restart(name)
        return name

    def _freeze(self, random_: random.Random) -> str:
        """Beyond its lease; its twin goes on."""
        free = [n for n in PROGRAMS if n not in self._frozen and twin(n) not in self._frozen]
        if not free:
            return "nothing, all pairs have one that is frozen"
        name = random_.choice(sorted(free))
        self.platform.freeze(name)
        self._frozen[name] = time.monotonic() + FROZEN_SECONDS
        return name

    def _flush(self) -> str:
        count = self.platform.redis.dbsize()
        self.platform.redis.flushall()
        return f"{count} keys"

    def _restart(self, server: PrivateServer) -> str:
        server.kill()
        time.sleep(AWAY_SECONDS)
        server.start()
        return "is back"

    def _fill(self, client: object) -> str:
        self.platform.fill(client)
        time.sleep(FULL_SECONDS)
        self.platform.make_room(client)
        return f"for {FULL_SECONDS:g} s"

    def _refuse(self, client: object, random_: random.Random) -> str:
        how = random_.choice(["READONLY", "NOREPLICAS"])
        self.platform.refuse(client, how)
        time.sleep(FULL_SECONDS)
        self.platform.take_writes(client)
        return f"{how} for {FULL_SECONDS:g} s"

    def _answer_unstorably(self) -> str:
        """One consumer answers with a text that columns of attempts, in utf8mb3, do not hold."""
        before = self.platform.unlogged_count()
        self.platform.answer_text.write_text(TEXT)
        time.sleep(FULL_SECONDS)
        self.platform.wait_until(
            lambda: self.platform.unlogged_count() > before, "a delivery marked without its text"
        )
        self.platform.answer_text.unlink()
        count = self.platform.unlogged_count() - before
        return f"for at least {FULL_SECONDS:g} s; {count} marked without it so far"

    def _hang(self, server: PrivateServer) -> str:
        self.platform.hang(server)
        time.sleep(HUNG_SECONDS)
        self.platform.resume_server(server)
        return f"for {HUNG_SECONDS:g} s"

    def _fill_disk(self) -> str:
        """Database and SMS Redis are on it. Either may end when it cannot write, and is started
        again when there is room."""
        servers = (self.platform.database, self.platform.sms_server)
        self.platform.disk.fill()
        time.sleep(FULL_SECONDS)
        self.platform.disk.make_room()
        ended = [server.name for server in servers if server.pid is None]
        for server in servers:  # one that is about to end does not answer for long
            self.platform.wait_until(lambda server=server: server.start().answers(), server.name)
        return f"for {FULL_SECONDS:g} s; ended: {', '.join(ended) or 'none'}"

    def _step_clock(self, random_: random.Random) -> str:
        """That of the second machine; it is set right some seconds later."""
        seconds = random_.choice([-1, 1]) * random_.randint(5, MAX_STEP)
        self.platform.clock.step(seconds)
        self._stepped_until = time.monotonic() + STEPPED_SECONDS
        return f"by {seconds} s, for at least {STEPPED_SECONDS:g} s"

    def _calm(self, now: float) -> None:
        """What was frozen long enough goes on, and a clock that stepped is right again."""
        self._thaw(now)
        if self._stepped_until <= now:
            self.platform.clock.step(0)

    def _thaw(self, now: float) -> None:
        for name in [name for name, until in self._frozen.items() if until <= now]:
            del self._frozen[name]
            self.platform.thaw(name)

    def _count(self) -> None:
        """At one moment: what arrived since the last count and is open still may come once more."""
        with self.platform.standing_still():
            unmarked = set(self.platform.script(OPEN))
            arrived = Counter(f"{name} {pk}" for name, sink in self.sinks.items()
                              for pk in sink.lines())  # fmt: skip
        self.may_repeat += sum(1 for delivery in arrived - self._counted if delivery in unmarked)
        self._counted = arrived
