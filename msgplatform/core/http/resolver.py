"""Resolves names to vetted addresses, in a few threads, with a short bounded cache.

The system's resolver blocks, for tens of seconds when a domain's servers are dead. Hence the
threads, and three lanes, so that dead domains do not delay healthy ones: names whose last lookup
was slow; names in use, to be refreshed; new names. A lane has as many threads as names wait in it,
up to a bound. A name in steady use never waits, since an answer that has just expired is still used
while it is being refreshed.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

import msgspec

from msgplatform.core import logging
from msgplatform.core.daemons.timer import Every
from msgplatform.core.http.addresses import AddressGuard, canonical

log = logging.get(__name__)

Lookup = Callable[[str], Sequence[str]]

TTL_SECONDS = 30.0
NEGATIVE_TTL_SECONDS = 5.0
_CAPACITY = 4096  # names
# Threads of each lane: a hundred dead names of ten seconds delay a new name by about ten seconds,
# not by two minutes.
MAX_THREADS, _MAX_SLOW_THREADS = 64, 2
_IDLE_SECONDS = 30.0  # a thread without work ends after this long
_SLOW_SECONDS = 1.0  # a lookup that took longer than this puts its name into the slow lane


class Answer(msgspec.Struct):
    """The result for a name: `error` is '', 'dns' or 'address_forbidden', with a sentence.

    `addresses` are canonical, in the order to be tried; `seconds` is how long the lookup took.
    """

    name: str
    addresses: list[str] = msgspec.field(default_factory=list)
    error: str = ""
    detail: str = ""
    seconds: float = 0.0
    fresh_until: float = 0.0
    usable_until: float = 0.0
    preferred: str = ""

    def prefer(self, address: str) -> None:
        """Try this address first from now on, since earlier addresses did not answer."""
        if address in self.addresses:
            self.addresses.remove(address)
            self.addresses.insert(0, address)
            self.preferred = address


def system_lookup(name: str) -> list[str]:
    """The system's answer (hosts file, DNS), best first. Raises OSError."""
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(entry[4][0]) for entry in entries]


class Resolver:
    """Only one thread calls `ask()` and `collect()`; other threads call `notify`.

    `ttl` and `negative_ttl` are seconds.
    """

    def __init__(
        self,
        guard: AddressGuard,
        notify: Callable[[], None],
        lookup: Lookup = system_lookup,
        ttl: float = TTL_SECONDS,
        negative_ttl: float = NEGATIVE_TTL_SECONDS,
    ) -> None:
        self._guard, self._notify, self._lookup = guard, notify, lookup
        self._ttl, self._negative_ttl = ttl, negative_ttl
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        # Only the asking thread uses `_answers` and `_asked`; the threads that look names up only
        # take from a lane and put into `_results`.
        self._asked: set[str] = set()
        self._new, self._known = (_Lane(MAX_THREADS, self._look_up) for _ in range(2))
        self._slow = _Lane(_MAX_SLOW_THREADS, self._look_up)
        self._results: SimpleQueue[Answer] = SimpleQueue()

    def ask(self, name: str) -> Answer | None:
        """The answer for `name`; None if a lookup must come first, see `collect()`."""
        answer = self._answers.get(name)
        now = time.monotonic()
        if answer is not None and now < answer.fresh_until:
            return answer
        if name not in self._asked and self._lane(answer).put(name):
            self._asked.add(name)
        return answer if answer is not None and now < answer.usable_until else None

    def collect(self) -> list[Answer]:
        """Answers that have come since the last call."""
        answers = []
        while not self._results.empty():
            answer = self._results.get()
            self._asked.discard(answer.name)
            if earlier := self._answers.get(answer.name):
                answer.prefer(earlier.preferred)  # other addresses may still be dead
            self._answers[answer.name] = answer
            self._answers.move_to_end(answer.name)
            if len(self._answers) > _CAPACITY:
                self._answers.popitem(last=False)
            answers.append(answer)
        return answers

    def close(self) -> None:
        """Ask the threads to end. A thread ends after its present lookup."""
        for lane in (self._new, self._known, self._slow):
            lane.close()

    def _lane(self, answer: Answer | None) -> _Lane:
        if answer is not None and answer.seconds > _SLOW_SECONDS:
            return self._slow
        return self._new if answer is None or answer.error else self._known

    def _look_up(self, name: str) -> None:
        answer, start = Answer(name), time.monotonic()
        try:
            addresses = self._lookup(name)
            answer.addresses = list(dict.fromkeys(str(canonical(text)) for text in addresses))
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a lookup raises
            cause = error.strerror if isinstance(error, OSError) else None
            cause = cause or type(error).__name__
            answer.error, answer.detail = "dns", f"The name {name} cannot be resolved: {cause}."
        now = time.monotonic()
        answer.seconds = now - start
        if not answer.error and not answer.addresses:
            answer.error, answer.detail = "dns", f"The name {name} has no address."
        # One forbidden address refuses the name, or chance would decide which address is used.
        reasons = filter(None, map(self._guard.reason, answer.addresses))
        if reason := next(reasons, ""):
            answer.error, answer.detail = "address_forbidden", f"{name}: {reason}"
        answer.fresh_until = now + (self._negative_ttl if answer.error else self._ttl)
        answer.usable_until = answer.fresh_until + (0 if answer.error else self._ttl)
        self._results.put(answer)
        self._notify()


class _Lane:
    """Waiting names, and threads that `work` on them: a thread for each name, up to a bound. An
    idle thread ends."""

    def __init__(self, max_threads: int, work: Callable[[str], None]) -> None:
        self._max_threads, self._work = max_threads, work
        self._names: SimpleQueue[str | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._open = 0  # names that wait, or are in work
        self._next_log = Every(1.0)

    def put(self, name: str) -> bool:
        """False if there is no thread for the name, which is not taken then."""
        with self._lock:
            if self._threads < min(self._open + 1, self._max_threads):
                # A daemon thread, because a hanging lookup must not delay the end of the process.
                thread = threading.Thread(target=self._run, name="resolver", daemon=True)
                try:
                    thread.start()
                    self._threads += 1
                except RuntimeError:  # the system has no more threads: the next name starts one
                    if self._next_log.take():
                        log.error("no_thread_for_lookups")
                    if not self._threads:
                        return False
            self._names.put(name)
            self._open += 1
            return True

    def close(self) -> None:
        with self._lock:
            for _ in range(self._threads):
                self._names.put(None)

    def _run(self) -> None:
        while True:
            try:
                name, is_over = self._names.get(timeout=_IDLE_SECONDS), False
            except Empty:
                name, is_over = None, True
            if name is not None:
                self._work(name)
            with self._lock:
                if name is not None:
                    self._open -= 1
                elif not (is_over and self._names.qsize()):
                    self._threads -= 1
                    return
