"""SMS receiver: gateways connect to it with their Reports, MOs and changes of users.

Several may run, also on one port of one machine: what belongs together meets in Redis.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections import Counter
from collections.abc import Iterable

from django.conf import settings

from gateway import presence, sgip
from gateway.directory import Directory, Gateway
from gateway.inbox import Arrivals
from gateway.net import Connection, Server
from gateway.net.thread import NetThread
from gateway.presence import LinkState
from msgplatform.core import logging
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every

log = logging.get(__name__)

_SAY_SECONDS = 1.0
_REFRESH_SECONDS = 0.5  # the directory knows itself whether it is due
_LATE_SECONDS = 5.0
_WAIT_SECONDS = 0.5
# Of one gateway in this process; SGIP's own gateways keep to 15 among each other.
MOST_CONNECTIONS = 32


class SmsReceiver(Worker):
    """Listens on `host`:`port`, by default where the settings say; `port` 0 takes a free one."""

    role = "sms_receiver"

    def __init__(self, host: str | None = None, port: int | None = None) -> None:
        super().__init__()
        self.name = presence.process_name()
        self.directory = Directory()
        self.net = NetThread()
        self.news = threading.Event()
        self.arrivals = Arrivals(self.net, self.news)
        self.doorkeeper = Doorkeeper(self.directory, self.arrivals)
        self.server: Server | None = None
        self._host = settings.SMS_RECEIVER_HOST if host is None else host
        self._port = settings.SMS_RECEIVER_PORT if port is None else port
        self._refresher = ThreadLoop("refresher", self.directory.refresh, every=_REFRESH_SECONDS)
        self._next_say, self._next_late = Every(_SAY_SECONDS), Every(_LATE_SECONDS)

    @property
    def port(self) -> int:
        return self.server.port if self.server else 0

    def start(self) -> None:
        self.net.start()
        self._refresher.start()

    def turn(self) -> bool:
        """Make safe and answer what came; waits for news itself when there is none."""
        if not self.directory.gateways:
            self.directory.refresh()
        if self.server is None:
            self._listen()
        self.news.clear()
        done = self.arrivals.turn()
        self.heartbeat.done += done
        self._say()
        self._take_late()
        if not done:
            self.news.wait(_WAIT_SECONDS)
        return True

    def drain(self, deadline: float) -> None:
        """Answer what has come; gateways send again what comes from now on."""
        while self.arrivals.open and time.monotonic() < deadline:
            self.arrivals.turn()

    def stop(self) -> None:
        self._refresher.stop()
        if self.server is not None:
            try:
                self.net.run(self.server.stop(), 5.0)
            except TimeoutError:
                log.warning("server_not_closed")
        self.net.stop()

    def _listen(self) -> None:
        """Raises OSError when the port is taken; the loop tries again."""
        server = Server(sgip.Side.SP, self.doorkeeper.check, self.doorkeeper)
        self.net.run(server.start(self._host, self._port, reuse_port=True))
        self.server = server
        log.info("listening", host=self._host, port=server.port)

    def _say(self) -> None:
        if self._next_say.take():
            presence.say(self.name, self.doorkeeper.states())

    def _take_late(self) -> None:
        if self._next_late.take():
            self.arrivals.mo_intake.take_late()


class Doorkeeper:
    """Knows which connection is whose. Runs in the net's loop but for `states`."""

    def __init__(self, directory: Directory, arrivals: Arrivals) -> None:
        self._directory, self._arrivals = directory, arrivals
        self._gateways: dict[Connection, tuple[int, float]] = {}
        self._received: Counter[Connection] = Counter()

    def check(self, bind: sgip.Bind) -> int:
        """The Result for a Bind; that its type is right was seen before."""
        gateway = self._gateway_of(bind)
        if gateway is None:
            log.warning("login_refused", name=bind.login_name)
            return int(sgip.Result.LOGIN)
        mine = sum(1 for other, _ in self._gateways.values() if other == gateway.id)
        if mine >= MOST_CONNECTIONS:
            log.warning("too_many_connections", gateway=gateway.name, connections=mine)
            return int(sgip.Result.TOO_MANY_CONNECTIONS)
        return int(sgip.Result.OK)

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        requests: list[sgip.Deliver | sgip.Report | sgip.UserRpt] = []
        for event in events:
            if isinstance(event, sgip.Deliver | sgip.Report | sgip.UserRpt):
                requests.append(event)
            elif type(event) is sgip.Bound:
                gateway = self._gateway_of(event.bind)
                self._gateways[connection] = (gateway.id if gateway else 0, time.time())
                log.info("smg_bound", name=event.bind.login_name, peer=connection.peer)
            elif type(event) is sgip.Closed:
                self._closed(connection, event)
        if requests:
            self._received[connection] += len(requests)
            self._arrivals.put(connection, self._gateways.get(connection, (0, 0.0))[0], requests)

    def states(self) -> Iterable[LinkState]:
        now = time.time()
        unusable = [
            LinkState(gateway.id, "report", "", now, problem=gateway.problem)
            for gateway in self._directory.gateways.values()
            if gateway.smg_login_password is None
        ]
        return unusable + [
            LinkState(
                gateway, "report", connection.peer, since, received=self._received[connection]
            )
            for connection, (gateway, since) in list(self._gateways.items())
        ]

    def _closed(self, connection: Connection, event: sgip.Closed) -> None:
        self._received.pop(connection, None)
        if self._gateways.pop(connection, None) is None or event.error:
            log.warning("smg_closed", peer=connection.peer, why=str(event.error or event.reason))

    def _gateway_of(self, bind: sgip.Bind) -> Gateway | None:
        """All are compared, each in constant time: how long it takes tells nothing."""
        found = None
        for gateway in sorted(self._directory.gateways.values(), key=lambda one: -one.id):
            name = _same(bind.login_name, gateway.row.smg_login_name)
            known = gateway.smg_login_password
            if _same(bind.login_password, known or "") & name and known is not None:
                found = gateway
        return found


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
