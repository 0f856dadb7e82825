"""SMS sender: pending messages go to the gateways as Submits, what gateways answer goes to Redis.

Two threads, so that neither waits for the other's peer:

    turn (this worker's thread): Redis       net: sockets, an event loop
    claim, pack, pace, remember ── put ──▶   write through the windows
    write responses, Reports    ◀── take ──  collect responses, Reports

Other threads ask the database, so that no turn waits for it: `refresher` reads the settings anew,
and the threads of `Arrivals` take in MOs and raise alerts. A turn asks it only while there is no
gateway at all.
"""

import threading
import time
from collections.abc import Collection
from concurrent.futures import Future, wait

from gateway import presence, signals
from gateway.directory import Directory, Gateway
from gateway.inbox.arrivals import Arrivals
from gateway.net import NetThread
from gateway.sender.gateway_worker import GatewayWorker
from gateway.sender.link import Link
from gateway.sender.rerouting import StrandedMessages
from msgplatform.core import logging, outbound
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.daemons.wake_signal import Listener
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

_REFRESH_SECONDS = 0.5  # the directory knows itself whether it is due
_UNBIND_SECONDS = 3.0  # seconds for the responses and for the answer to Unbind
_IDLE_SECONDS = 1.0  # maximum pause of a turn
_SHORT_SECONDS = 0.05  # until the speed limit allows the next message


class SmsSender(Worker):
    """`names`: the names of the gateways to serve; empty: all enabled gateways without a process of
    their own."""

    role = "sms_sender"
    needs_ids_at_once = True  # for MOs

    def __init__(self, names: Collection[str] = ()) -> None:
        super().__init__()
        self.name = presence.process_name()
        self.directory = Directory()
        self.workers: dict[int, GatewayWorker] = {}
        # Replaced or switched-off links, by gateway: their last responses are awaited meanwhile.
        self._closing: dict[int, tuple[GatewayWorker, Future[None]]] = {}
        self.net = NetThread()
        # Set by the net's thread, and by the wake-up signal of accepted messages.
        self.wake_event = threading.Event()
        self.arrivals = Arrivals(self.net, self.wake_event, self.directory)
        self._listener = Listener(signals.SENDER, self.wake_event.set)
        self._names = frozenset(names)
        self._stranded = StrandedMessages(self.name)
        self._refresher = ThreadLoop("refresher", self.directory.refresh, every=_REFRESH_SECONDS)
        self._idle = Backoff(first=0.005, factor=1.5, cap=_IDLE_SECONDS)
        self._next_report = Every(presence.REPORT_SECONDS)
        self._links: list[presence.LinkState] = []

    def start(self) -> None:
        self.net.start()
        self.arrivals.start()
        self._refresher.start()
        self._listener.start()

    def turn(self) -> bool:
        """A round over all gateways; waits for changes itself when there is nothing to do."""
        if not self.directory.known.gateways:  # a first turn must not wait for the refresher
            self.directory.refresh()
        self.wake_event.clear()
        self._report_links()
        self._finish_closing()
        self._follow_directory()
        count = self.arrivals.turn()
        for worker in list(self.workers.values()):
            try:
                count += worker.turn(self._connected_ids)
            except UNAVAILABLE:
                raise
            except Exception:  # trouble of one gateway's messages must not stop the others
                self.heartbeat.failed += 1
                log.exception("despatch_failed", gateway=worker.gateway.name)
        if not self._names and not outbound.is_off():
            closed_ids = self.directory.known.closed_ids
            count += self._stranded.turn(closed_ids, self._absent_ids, self._connected_ids)
        if count:
            self._idle.reset()
        else:
            is_short = any(worker.pace.is_short for worker in self.workers.values())
            max_pause = _SHORT_SECONDS if is_short else _IDLE_SECONDS
            self.wake_event.wait(min(self._idle.next(), max_pause))
        return True

    def drain(self, deadline: float) -> None:
        """Claim nothing more, give back messages that were not remembered, await the responses."""
        workers = self.workers.values()
        while time.monotonic() < deadline:
            self.wake_event.clear()
            try:
                for worker in workers:
                    worker.release()
                    worker.respond()
                self._finish_closing()
                self.arrivals.turn()
            except UNAVAILABLE as error:
                log.warning("draining_waits", why=str(error)[:200])
            is_busy = self._closing or any(worker.is_busy for worker in workers)
            if not is_busy and not self.arrivals.open_count:
                return
            self.wake_event.wait(0.1)

    def stop(self) -> None:
        self._listener.stop()
        self._refresher.stop()
        for worker in list(self.workers.values()):
            self._begin_closing(worker)
        wait([closing for _worker, closing in self._closing.values()], 2 * _UNBIND_SECONDS)
        try:
            self._finish_closing()
        except UNAVAILABLE as error:
            log.warning("responses_not_written", why=str(error)[:200])
        self.arrivals.stop()
        self.net.stop()  # after the last Unbind
        try:
            presence.links.withdraw(self.name)  # other senders get its share at once
        except RedisError as error:
            log.warning("end_not_said", why=str(error)[:200])

    # -- the gateways ----------------------------------------------------------------------------
    def _follow_directory(self) -> None:
        """Keep a link for each gateway, a new one where the settings of a link changed."""
        # A gateway without a link claims no message, and ends none whose time is over.
        gateways = {} if outbound.is_off() else self.directory.served_gateways(self._names)
        for gateway_id, worker in list(self.workers.items()):
            gateway = gateways.get(gateway_id)
            if gateway is None or _settings(gateway) != _settings(worker.gateway):
                # Released messages are claimed again, by the new link or by another sender.
                worker.release()
                self._begin_closing(worker)
            else:
                worker.gateway = gateway
        for gateway_id, gateway in gateways.items():
            if gateway_id in self._closing:  # the operator also counts the old connections
                continue
            senders = {
                link.process
                for link in self._links
                if link.gateway == gateway_id and link.kind in ("submit", "standby")
            }
            share = presence.share(gateway.row.connections, self.name, senders)
            if gateway_id not in self.workers:
                link = Link(gateway, share, self.arrivals, self.wake_event)
                self.net.call(link.start)
                self.workers[gateway_id] = GatewayWorker(
                    gateway, link, self.name, self.net.call, self.heartbeat
                )
            elif share != (link := self.workers[gateway_id].link).connections:
                log.info("link_share", gateway=gateway.name, connections=share)
                self.net.call(link.resize, share)

    def _begin_closing(self, worker: GatewayWorker) -> None:
        """Unbind in order, while turns go on. A Submit without a timely response is due again."""
        gateway_id = worker.gateway.id
        del self.workers[gateway_id]
        closing = self.net.begin(worker.link.stop(_UNBIND_SECONDS))
        closing.add_done_callback(lambda _future: self.wake_event.set())
        self._closing[gateway_id] = worker, closing

    def _finish_closing(self) -> None:
        """Write down the last responses, and forget links that are closed."""
        for gateway_id, (worker, closing) in list(self._closing.items()):
            is_closed = closing.done()  # ask first: no response comes after it
            worker.respond()
            if is_closed:
                del self._closing[gateway_id]
                if error := closing.exception():
                    log.warning("link_not_closed", why=str(error)[:200])

    # -- what others see -------------------------------------------------------------------------
    def _connected_ids(self) -> Collection[int]:
        """Gateways with a link in any process."""
        return presence.connected_gateways(self._links)

    def _absent_ids(self) -> list[int]:
        """Gateways with a process of their own that does not run."""
        present_ids = {link.gateway for link in self._links if link.kind in ("submit", "standby")}
        gateways = self.directory.known.gateways.items()
        return [id for id, gateway in gateways if gateway.row.own_process and id not in present_ids]

    def _report_links(self) -> None:
        """Exchange the states of links with other processes: every two seconds, changes at once."""
        changed_workers = [worker for worker in self.workers.values() if worker.link.state_changed]
        if not self._next_report.is_due and not changed_workers:
            return
        for worker in changed_workers:
            worker.link.state_changed = False
        self._next_report.restart()
        states: list[presence.LinkState] = []
        for worker in self.workers.values():
            self.net.call(worker.link.sweep)
        for gateway_id, gateway in self.directory.served_gateways(self._names).items():
            if gateway_id in self.workers:
                states += self.workers[gateway_id].link.states()
            else:  # report before connecting: all processes must know its share
                where = gateway.row.address
                problem = outbound.OFF if outbound.is_off() else ""
                states.append(
                    presence.LinkState(gateway_id, "standby", where, time.time(), problem=problem)
                )
        presence.report(self.name, states)
        self._links = presence.live()


def _settings(gateway: Gateway) -> tuple[object, ...]:
    """The settings of a connection. When one of them changes, the connection must be made anew."""
    row = gateway.row
    return (
        gateway.node_id, row.host, row.port, row.login_name, gateway.login_password, row.window,
        row.response_timeout, row.idle_timeout,
    )  # fmt: skip
