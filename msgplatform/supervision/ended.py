"""Programs that end by themselves: how often within a minute, and their last words."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import exits
from msgplatform.core.daemons.exits import MIN_EXITS, PERIOD_SECONDS, Exits
from msgplatform.core.logging import last_words

_TAIL_BYTES = 16_384


class EndedPrograms:
    """What supervisord's programs do, from one look to the next. `say` tells the terminal."""

    def __init__(self, logs: Path, say: Callable[[str], None]) -> None:
        self._logs, self._say = logs, say
        self._started: dict[str, int] = {}  # process → when it was started last, in unix seconds
        self._ends: defaultdict[str, deque[float]] = defaultdict(deque)
        self._told_at: dict[str, float] = {}  # process → when the terminal was told
        self._reported: list[Exits] = []

    def look(self, processes: Iterable[Mapping[str, Any]]) -> None:
        """`processes` is supervisord's information on each. Raises OSError."""
        looping: list[Exits] = []
        for info in processes:
            name, start, now = info["name"], int(info["start"]), float(info["now"])
            before = self._started.get(name, 0)
            self._started[name] = start
            ends = self._ends[name]
            if before and start != before:
                ends.append(now)
            while ends and now - ends[0] > PERIOD_SECONDS:
                ends.popleft()
            if len(ends) >= MIN_EXITS:
                words = _last_words(self._logs / f"{name}.log")
                looping.append(Exits(name.partition("-")[0], len(ends), words))
                self._tell(name, looping[-1], now)
        self._report(looping)

    def _report(self, looping: list[Exits]) -> None:
        if not looping and not self._reported:
            return
        try:
            exits.report(looping, [one for one in self._reported if one not in looping])
        except RedisError:
            return  # the file is written; the records are repeated at the next look
        self._reported = looping

    def _tell(self, name: str, exits_of_program: Exits, now: float) -> None:
        """Once a minute, since it ends every few seconds."""
        if now - self._told_at.get(name, 0.0) >= PERIOD_SECONDS:
            self._told_at[name] = now
            self._say(f"{name}: {exits_of_program.text} See {self._logs / name}.log")


def _last_words(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return last_words(file.read().decode("utf-8", "replace"))
    except OSError:
        return ""
