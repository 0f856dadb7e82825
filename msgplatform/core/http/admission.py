"""Admit requests: the window, the queue before it, names and the address guard.

This module uses no HTTP library. A job gets a slot, then addresses, then a transfer, or an answer
without a transfer.
"""

import time
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http.addresses import AddressGuard, is_inside, own_reason
from msgplatform.core.http.jobs import MAX_SECONDS, Deadlines, Job, Proxy
from msgplatform.core.http.messages import Request, Response, all_lines, outline_of, printable
from msgplatform.core.http.resolver import Answer, Resolver

_ADDRESSES_TRIED = 4
_NO_SLOT = "No slot was free before the deadline; nothing was sent."
_NO_TIME = "The deadline was over before anything was sent."
_ELSEWHERE = "not in a network that is allowed for this request"
_NO_NAME = "The name was not resolved before the deadline; nothing was sent."


class Admission:
    """The admission of one thread. `in_flight` is the number of taken slots, `refused` gathers
    responses."""

    def __init__(
        self, guard: AddressGuard, window: int, proxy: Proxy | None, names: Resolver
    ) -> None:
        self.window, self.in_flight = window, 0
        self.refused: list[Response] = []
        self._proxy, self._names = proxy, names
        self._takes_names = proxy is not None and proxy.resolves
        self._reason = lru_cache(maxsize=4096)(guard.reason)
        self._is_inside = lru_cache(maxsize=4096)(is_inside)
        self._queue: deque[Job] = deque()
        self._parked: dict[str, list[Job]] = {}  # name → jobs that need its addresses
        self._deadlines = Deadlines()
        self._ready: list[Job] = []

    def submit(self, request: Request) -> None:
        """Take a request in. A fault of the request becomes its response."""
        now = time.monotonic()
        outline = request.outline or outline_of(request)
        destination = outline.destination
        error, detail = outline.problem
        try:
            lines = all_lines(outline, request)
        except InvalidInput as why:
            error, detail = "other", printable(str(why))
        if error or destination is None:
            self.refused.append(Response(request, 0, b"", b"", 0.0, error, detail, ""))
            return
        # With this order of arguments `min` takes MAX_SECONDS for a NaN.
        deadline = now + min(MAX_SECONDS, request.timeout)
        job = Job(request, destination, lines, now, deadline)
        job.is_own = destination.host == outline.own_host
        if self.in_flight < self.window:
            self._admit(job)
        else:
            self._queue.append(job)
            self._deadlines.watch(job)

    def take_ready(self) -> list[Job]:
        """The jobs to start now. A job that is already late gets its answer instead."""
        ready = self._ready
        if not ready:
            return ready
        self._ready = []
        now = time.monotonic()
        late = [job for job in ready if job.deadline <= now]
        for job in late:
            self._refuse(job, "timeout", _NO_TIME)
        return [job for job in ready if job.deadline > now] if late else ready

    def release(self, slots: int = 1) -> None:
        """Transfers have ended; `settle()` gives their slots to the next in the queue."""
        self.in_flight -= slots

    def settle(self, now: float) -> None:
        """Use the names that were resolved, answer the jobs that are late, fill the window."""
        for answer in self._names.collect():
            for job in self._parked.pop(answer.name, ()):
                if job.is_waiting:
                    self._find_addresses(job)
        for job in self._deadlines.expired(now):
            self._refuse(job, "timeout", _NO_NAME if job.is_admitted else _NO_SLOT)
        while self._queue and self.in_flight < self.window:
            if (job := self._queue.popleft()).is_waiting:
                self._admit(job)

    def next_deadline(self) -> float:
        """The monotonic time at which `settle()` must answer a late job."""
        return self._deadlines.next()

    def prefer(self, job: Job) -> None:
        """Note that the job's current address worked after others failed."""
        if answer := self._names.ask(job.destination.host):
            answer.prefer(job.addresses[job.attempt])

    def _admit(self, job: Job) -> None:
        self.in_flight += 1
        job.is_admitted = True
        self._find_addresses(job)

    def _find_addresses(self, job: Job) -> None:
        proxy = None if job.is_own else self._proxy
        if self._find_target(job) and (proxy is None or self._find_proxy(job, proxy)):
            job.is_waiting = False
            self._ready.append(job)

    def _find_target(self, job: Job) -> bool:
        target = job.destination
        addresses: Sequence[str]
        if target.address:
            judge = own_reason if job.is_own else self._reason
            if reason := judge(target.address):
                self._refuse(job, "address_forbidden", reason)
                return False
            addresses = (target.address,)
        else:
            answer = self._ask(job, target.host)
            if answer is None:
                return False
            error, detail = answer.error, answer.detail
            if job.is_own and error == "address_forbidden":
                detail = next(filter(None, map(own_reason, answer.addresses)), "")
                error = error if detail else ""
            unknown_here = error == "dns" and self._takes_names and not job.is_own
            if error and not unknown_here:
                self._refuse(job, error, detail)
                return False
            addresses = answer.addresses
        if job.request.networks:
            addresses = self._narrow(job, addresses)
            if not addresses:
                return False
        # The addresses that a transfer is bound to: none when a proxy takes names.
        takes_names = self._takes_names and not job.is_own
        job.addresses = () if takes_names else addresses[:_ADDRESSES_TRIED]
        return True

    def _narrow(self, job: Job, addresses: Sequence[str]) -> Sequence[str]:
        """The addresses inside the request's own networks. A job without such addresses is refused.

        A proxy that takes names chooses the address itself, so that all addresses must be inside.
        """
        networks, host = job.request.networks, job.destination.host
        inside_addresses = [address for address in addresses if self._is_inside(address, networks)]
        if inside_addresses and (len(inside_addresses) == len(addresses) or not self._takes_names):
            return inside_addresses
        others = [address for address in addresses if address not in inside_addresses]
        if not others:
            detail = f"{host} cannot be resolved here, and could be {_ELSEWHERE}."
        elif host == others[0]:
            detail = f"{host} is {_ELSEWHERE}."
        else:
            detail = f"{host}: {others[0]} is {_ELSEWHERE}."
        self._refuse(job, "address_forbidden", detail)
        return ()

    def _find_proxy(self, job: Job, proxy: Proxy) -> bool:
        if proxy.address:
            job.peers = (proxy.address,)
            return True
        answer = self._ask(job, proxy.host)
        if answer is None:
            return False
        if not answer.addresses:  # the guard's opinion of the operator's proxy does not count
            self._refuse(job, "dns", answer.detail)
            return False
        job.peers = list(answer.addresses)
        return True

    def _ask(self, job: Job, name: str) -> Answer | None:
        answer = self._names.ask(name)
        if answer is None:
            self._parked.setdefault(name, []).append(job)
            self._deadlines.watch(job)
        return answer

    def _refuse(self, job: Job, error: str, detail: str) -> None:
        job.is_waiting = False
        seconds = time.monotonic() - job.submitted
        self.refused.append(
            Response(job.request, 0, b"", b"", seconds, error, printable(detail), "")
        )
        if job.is_admitted:
            self.release()
