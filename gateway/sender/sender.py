"""SMS sender: pending messages go to the gateways as Submits, what gateways answer goes to Redis.

Two threads, so that neither waits for the other's peer:

    turn (this worker's thread): Redis       net: sockets, an event loop
    claim, pack, pace, remember ── put ──▶   write through the windows
    write responses, Reports    ◀── take ──  collect responses, Reports
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator

from gateway import bells, presence
from gateway.directory import Directory, Gateway
from gateway.inbox import Arrivals
from gateway.net.thread import NetThread
from gateway.sender.gateway_worker import Despatch
from gateway.sender.outages import Outages
from gateway.sender.rerouting import Stranded
from gateway.sender.uplink import Link
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.away import AWAY
from msgplatform.core.daemons.bell import Listener
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

_SAY_SECONDS = 1.0
_REFRESH_SECONDS = 0.5  # the directory knows itself whether it is due
_UNBIND_SECONDS = 3.0
_SHORT_SECONDS = 0.05


class SmsSender(Worker):
    """`only` names the gateways that it serves; none: all that are enabled and have no process of
    their own."""

    role = "sms_sender"

    def __init__(self, only: Collection[str] = ()) -> None:
        super().__init__()
        self.name = presence.process_name()
        self.directory = Directory()
        self.despatches: dict[int, Despatch] = {}
        self.net = NetThread()
        self.news = threading.Event()
        self.arrivals = Arrivals(self.net, self.news, self.directory)
        self._listener = Listener(bells.SENDER, self.news.set)
        self._only = frozenset(only)
        self._stranded = Stranded(self.name)
        self._outages = Outages(self.directory, self._only)
        self._refresher = ThreadLoop("refresher", self._refresh, every=_REFRESH_SECONDS)
        self._idle = Backoff(first=0.005, factor=1.5, cap=0.5)
        self._next_say = Every(_SAY_SECONDS)
        self._links: list[presence.LinkState] = []

    def start(self) -> None:
        self.net.start()
        self._refresher.start()
        self._listener.start()

    def _refresh(self) -> None:
        self.directory.refresh()
        self._outages.look()

    def turn(self) -> bool:
        """One round over all gateways; waits for news itself when there is nothing to do."""
        if not self.directory.gateways:
            self.directory.refresh()
        self.news.clear()
        self._say()
        self._follow_directory()
        worked = self.arrivals.turn()
        for despatch in list(self.despatches.values()):
            worked += self._turn_of(despatch)
        if not self._only:
            worked += self._stranded.turn_if_due(self.directory.closed, self._bound)
        if worked:
            self._idle.reset()
        else:
            short = any(despatch.pace.is_short for despatch in self.despatches.values())
            self.news.wait(min(self._idle.next(), _SHORT_SECONDS if short else 1.0))
        return True

    def drain(self, deadline: float) -> None:
        """Claim nothing more, give back what was not remembered, await the responses."""
        despatches = self.despatches.values()
        while time.monotonic() < deadline:
            self.news.clear()
            try:
                for despatch in despatches:
                    despatch.release()
                    despatch.respond()
                self.arrivals.turn()
            except AWAY as error:
                log.warning("draining_waits", why=str(error)[:200])
            if not any(d.is_busy for d in despatches) and not self.arrivals.open:
                return
            self.news.wait(0.1)

    def stop(self) -> None:
        self._listener.stop()
        self._refresher.stop()
        self._close(list(self.despatches.values()))
        self.net.stop()
        try:
            presence.withdraw(self.name)  # its share is the others' at once
        except RedisError as error:
            log.warning("end_not_said", why=str(error)[:200])

    # -- the gateways ----------------------------------------------------------------------------
    def _turn_of(self, despatch: Despatch) -> int:
        """Trouble with one gateway's messages must not stop the others'."""
        try:
            return despatch.turn(self._bound)
        except AWAY:
            raise
        except Exception:
            self.heartbeat.failed += 1
            log.exception("despatch_failed", gateway=despatch.gateway.name)
            return 0

    @property
    def _wanted(self) -> dict[int, Gateway]:
        return self.directory.served(self._only)

    def _follow_directory(self) -> None:
        """Links for the gateways there are, new ones where the settings of a link changed."""
        wanted = self._wanted
        for gateway_id, despatch in list(self.despatches.items()):
            gateway = wanted.get(gateway_id)
            if gateway is None or _settings(gateway) != _settings(despatch.gateway):
                despatch.release()
                despatch.respond()
                self._close([despatch])
                del self.despatches[gateway_id]
            else:
                despatch.gateway = gateway
        for gateway_id, gateway in wanted.items():
            share = self._share(gateway)
            if gateway_id not in self.despatches:
                self.despatches[gateway_id] = self._open(gateway, share)
            elif share != (link := self.despatches[gateway_id].link).connections:
                log.info("link_share", gateway=gateway.name, connections=share)
                self.net.call(link.resize, share)

    def _share(self, gateway: Gateway) -> int:
        """How many of the gateway's connections are this sender's."""
        others = {
            link.process
            for link in self._links
            if link.gateway == gateway.id and link.kind in ("submit", "standby")
        }
        return presence.share(gateway.row.connections, self.name, others)

    def _open(self, gateway: Gateway, connections: int) -> Despatch:
        link = Link(gateway, connections, self.arrivals, self.news)
        self.net.call(link.start)
        return Despatch(gateway, link, self.name, lambda outs: self.net.call(link.put, outs))

    def _close(self, despatches: list[Despatch]) -> None:
        """Unbind in order; what gets no response in time is due again by itself."""

        async def stop_all() -> None:
            await asyncio.gather(*(d.link.stop(_UNBIND_SECONDS) for d in despatches))

        try:
            self.net.run(stop_all(), 2 * _UNBIND_SECONDS)
            for despatch in despatches:
                despatch.respond()
        except (*AWAY, TimeoutError) as error:
            log.warning("links_not_closed", why=str(error)[:200])

    # -- what others see -------------------------------------------------------------------------
    def _bound(self) -> Collection[int]:
        """Gateways with a link in any process."""
        return presence.bound(self._links)

    def _say(self) -> None:
        """Once a second, and at once what is new: to others what we have, to us what they have."""
        moved = [d for d in self.despatches.values() if d.link.moved]
        if not self._next_say.is_due and not moved:
            return
        for despatch in moved:
            despatch.link.moved = False
        self._next_say.restart()
        for despatch in self.despatches.values():
            self.net.call(despatch.link.sweep)
        presence.say(self.name, self._states())
        self._links = presence.live()
        self.heartbeat.done = sum(d.done for d in self.despatches.values())
        self.heartbeat.failed = sum(d.failed for d in self.despatches.values())

    def _states(self) -> Iterator[presence.LinkState]:
        """Before it has a link it says that it is there: then its share is known to all."""
        for gateway_id, gateway in self._wanted.items():
            if despatch := self.despatches.get(gateway_id):
                yield from despatch.link.states()
            else:
                where = f"{gateway.row.host}:{gateway.row.port}"
                yield presence.LinkState(gateway_id, "standby", where, time.time())


def _settings(gateway: Gateway) -> tuple[object, ...]:
    """What a connection is made with: it must be made anew when this changes."""
    row = gateway.row
    return (
        gateway.node_id, row.host, row.port, row.login_name, gateway.login_password, row.window,
        row.response_timeout, row.idle_timeout,
    )  # fmt: skip
