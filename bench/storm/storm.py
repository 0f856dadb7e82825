"""Strikes, one after another, while the load goes on; then the books."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from bench.harness.ground import ROOT
from bench.harness.processes import Crew
from bench.storm.sides import LOAD, Account, Side
from msgplatform.core.servers.private_server import PrivateServer, ServerFailed

_AWAY_SECONDS, _PAUSE_SECONDS = 1.0, 2.0
_START_TRIES = 20


@dataclass(frozen=True)
class Seconds:
    """How long a server hangs, and a disk is full. After `patience`, which is longer than the
    longest lease and retry of a side, what has not come is lost."""

    hung: float = 6.0
    full: float = 4.0
    patience: float = 150.0


class Storm:
    def __init__(self, side: Side, crew: Crew, seconds: Seconds) -> None:
        self._side, self._crew, self._seconds, self._is_loaded = side, crew, seconds, True
        self.strikes: Counter[str] = Counter()

    def blow(self, seconds: float) -> None:
        """Until the time is over and each strike has been seen."""
        until = time.monotonic() + seconds
        strikes = self._strikes()
        while time.monotonic() < until or len(self.strikes) < len(strikes):
            for name, strike in strikes.items():
                if time.monotonic() > until and self.strikes[name]:
                    continue
                _say(f"{self._side.name}: {name}")
                strike()
                self.strikes[name] += 1
                self._pause()

    def _strikes(self) -> Mapping[str, Callable[[], None]]:
        strikes: dict[str, Callable[[], None]] = {}
        for label in self._side.workers:
            strikes[f"SIGKILL {label}"] = partial(self._crew.restart, label, is_killed=True)
        for name, server in self._side.servers().items():
            strikes[f"SIGSTOP {name}"] = partial(self._stop, server)
            strikes[f"SIGKILL {name}"] = partial(self._kill, server)
        return {**strikes, "full disk": self._fill}

    def _stop(self, server: PrivateServer) -> None:
        assert server.pid
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(self._seconds.hung)
        os.kill(server.pid, signal.SIGCONT)

    def _kill(self, server: PrivateServer) -> None:
        server.kill()
        time.sleep(_AWAY_SECONDS)
        _start(server)

    def _fill(self) -> None:
        disk = self._side.ground.disk
        disk.fill()
        time.sleep(self._seconds.full)
        disk.make_room()

    def _pause(self) -> None:
        """What has ended is started again, as by systemd."""
        time.sleep(_PAUSE_SECONDS)
        for server in self._side.servers().values():
            _start(server)
        running = self._crew.trees()
        for label in self._side.workers:
            if label not in running and (label != LOAD or self._is_loaded):
                _say(f"{self._side.name}: {label} had ended")
                self._crew.restart(label, is_killed=True)

    def await_rest(self) -> Account:
        """Wait until nothing is lost, or nothing has come for so long that it never will."""
        self._is_loaded = False
        account, deadline = self._side.account(), time.monotonic() + self._seconds.patience
        while account.lost and time.monotonic() < deadline:
            self._pause()
            last, account = account, self._side.account()
            if account.lost != last.lost:
                deadline = time.monotonic() + self._seconds.patience
        return account


def run(side: Side, seconds: float, strike: Seconds | None = None) -> dict[str, Any]:
    """The side's account after a storm of so many seconds. Raises BenchFailed."""
    for server in side.servers().values():
        server.start()
    with Crew(side.programs(), side.ground.folder, ROOT) as crew:
        side.begin(crew)
        storm = Storm(side, crew, strike or Seconds())
        time.sleep(_PAUSE_SECONDS)
        storm.blow(seconds)
        crew.stop(LOAD)
        account = storm.await_rest()
        side.end()
    strikes = dict(storm.strikes)
    return {"side": side.name, **asdict(account), "strikes": strikes, "settings": side.settings}


def _start(server: PrivateServer) -> None:
    """A server may end once more while it starts, as MariaDB on a disk that was full."""
    for number in range(_START_TRIES):
        try:
            server.start()
        except ServerFailed:
            if number == _START_TRIES - 1:
                raise
            time.sleep(_AWAY_SECONDS)
        else:
            return


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
