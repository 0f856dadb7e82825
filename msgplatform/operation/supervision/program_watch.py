"""Watches supervisord's programs: reports programs that end again and again, and kills programs
and workers of the web server that hang."""

import json
import os
import signal
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import exits, heartbeats
from msgplatform.core.daemons.exits import MIN_EXITS, PERIOD_SECONDS, Exits
from msgplatform.core.servers.logged_errors import last_words
from msgplatform.operation.supervision.config import NEXT

HUNG_SECONDS = 60.0
# A longer time between two looks counts as this: the whole machine may have stood still.
_MAX_STEP_SECONDS = 5.0
_TAIL_BYTES = 16_384


class ProgramWatch:
    """`logs` is the folder of the programs' logs; `say` writes to the terminal. A process without a
    heartbeat for `hung_seconds` hangs; its last heartbeat stays in Redis for the first TTL_SECONDS.
    """

    def __init__(
        self, logs: Path, say: Callable[[str], None], hung_seconds: float = HUNG_SECONDS
    ) -> None:
        self._logs, self._say, self._hung_seconds = logs, say, hung_seconds
        self._starts: dict[str, int] = {}  # process → its last start, in unix seconds
        self._ends: defaultdict[str, deque[float]] = defaultdict(deque)
        self._messages_at: dict[str, float] = {}  # process → the last message on the terminal
        # pid of a process that has sent heartbeats → seconds without a heartbeat in Redis
        self._silences: dict[int, float] = {}
        self._last_look = time.monotonic()
        self._hangs: list[tuple[float, Exits]] = []  # (monotonic time of the end, the end)
        self._last_report: list[Exits] = []

    def look(self, processes: Sequence[Mapping[str, Any]]) -> None:
        """Look at `processes`, supervisord's information on each. Raises OSError."""
        names_by_pid = {int(info["pid"]): str(info["name"]) for info in processes if info["pid"]}
        for pid in self._hung_pids(names_by_pid):
            self._end(pid, names_by_pid.get(pid) or names_by_pid[os_process(pid).parent])
        report: list[Exits] = []  # programs that end again and again, then those that hung
        for info in processes:
            name, start, now = info["name"], int(info["start"]), float(info["now"])
            last_start = self._starts.get(name, 0)
            self._starts[name] = start
            ends = self._ends[name]
            if last_start and start != last_start:
                ends.append(now)
            while ends and now - ends[0] > PERIOD_SECONDS:
                ends.popleft()
            if len(ends) >= MIN_EXITS:
                log_file = self._logs / f"{name}.log"
                report.append(Exits(_program(name), len(ends), _last_words(log_file)))
                # Say it once a minute, because the program ends every few seconds.
                if now - self._messages_at.get(name, 0.0) >= PERIOD_SECONDS:
                    self._messages_at[name] = now
                    self._say(f"{name}: {report[-1].text} See {log_file}")
        last_time = time.monotonic() - PERIOD_SECONDS
        self._hangs = [(at, end) for at, end in self._hangs if at > last_time]
        report += [end for _, end in self._hangs]
        if not report and not self._last_report:
            return
        with suppress(RedisError):  # the next look reports again
            exits.report(report, [end for end in self._last_report if end not in report])
            self._last_report = report

    def _hung_pids(self, names_by_pid: Mapping[int, str]) -> list[int]:
        """Pids of running processes, and of their workers, that stopped sending heartbeats. Silence
        does not count while Redis does not answer, or no process of this machine sends heartbeats.

        The web server's own process sends none: its workers do, and that process is well with one
        of them. If it hangs, it starts no worker.
        """
        now = time.monotonic()
        step = min(now - self._last_look, _MAX_STEP_SECONDS)
        self._last_look = now
        try:
            beats = heartbeats.alive()
        except RedisError:
            self._silences.clear()
            return []
        host = socket.gethostname()
        own_pids = {beat.pid for beat in beats if beat.host == host}
        live_pids = own_pids & names_by_pid.keys()
        for pid in own_pids - names_by_pid.keys():
            if (parent := os_process(pid).parent) in names_by_pid:
                live_pids |= {pid} if os_process(parent).is_stopped else {pid, parent}
        if not live_pids:
            return []
        silences = {
            pid: seconds + step
            for pid, seconds in self._silences.items()
            if pid in names_by_pid or os_process(pid).parent in names_by_pid
        }
        self._silences = silences | dict.fromkeys(live_pids, 0.0)
        limit = self._hung_seconds - heartbeats.TTL_SECONDS
        hung_pids = {pid for pid, seconds in self._silences.items() if seconds >= limit}
        # Workers end with their parent.
        return sorted(pid for pid in hung_pids if os_process(pid).parent not in hung_pids)

    def _end(self, pid: int, name: str) -> None:
        """Kill the process (supervisord starts it again), and report that in its log and the
        terminal."""
        end = Exits(_program(name), 1, "", hung_seconds=round(self._hung_seconds))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # a stopped process takes no other signal
        self._hangs.append((time.monotonic(), end))
        del self._silences[pid]  # that of its workers goes with them
        log_file, text = self._logs / f"{name}.log", str(end.text)
        entry = {
            "event": "hung", "level": "error", "logger": __name__, "pid": pid, "why": text,
            "timestamp": datetime.now(UTC).isoformat(),
        }  # fmt: skip
        with suppress(OSError), log_file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")
        self._say(f"{name}: {text} See {log_file}")


class OsProcess(NamedTuple):
    parent: int  # 0: unknown
    is_stopped: bool


def os_process(pid: int) -> OsProcess:
    """A process as Linux describes it (proc(5), `/proc/<pid>/stat`)."""
    with suppress(OSError, ValueError, IndexError):
        # The name in it may be of any bytes.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
        fields = text.rpartition(")")[2].split()
        return OsProcess(int(fields[1]), fields[0] in "Tt")
    return OsProcess(0, False)


def _program(name: str) -> str:
    """The program of a process: `run_sender` of `run_sender-2` and of `next-run_sender-2`."""
    return name.removeprefix(NEXT).partition("-")[0]


def _last_words(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return last_words(file.read().decode("utf-8", "replace"))
    except OSError:
        return ""
