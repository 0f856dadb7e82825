"""SMS receiver: gateways connect to it with their Reports, MOs and changes of users.

Several may run, also on one port of one machine: Redis joins the parts of a message.
"""

import threading
import time

from django.conf import settings

from gateway import presence, sgip
from gateway.directory import Directory
from gateway.inbox import mo_intake
from gateway.inbox.arrivals import Arrivals
from gateway.net import NetThread, Server
from gateway.receiver.bind_authentication import MAX_IN_ALL, BindAuthentication
from msgplatform.core import logging
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.http.environment import allow_sockets
from msgplatform.core.servers.private_server import is_in_use

log = logging.get(__name__)

_REFRESH_SECONDS = 0.5  # the directory itself knows when it is due
_REFUSALS_SECONDS = 1.0  # seconds between looks for alerts about strangers and wrong logins
_LATE_SECONDS = 5.0  # seconds between looks for long MOs with missing parts
_PORT_SECONDS = 60.0  # seconds between warnings about a port that another program has
_WAIT_SECONDS = 1.0  # maximum pause of a turn: its report is due then


class SmsReceiver(Worker):
    """Listens on `host`:`port`, by default where the settings say; `port` 0 takes a free one."""

    role = "sms_receiver"
    needs_ids_at_once = True  # for MOs

    def __init__(self, host: str | None = None, port: int | None = None) -> None:
        super().__init__()
        self.name = presence.process_name()
        self.directory = Directory()
        self.net = NetThread()
        self.wake_event = threading.Event()
        self.arrivals = Arrivals(self.net, self.wake_event, self.directory)
        self.authentication = BindAuthentication(self.directory, self.arrivals)
        self.server: Server | None = None
        self._host = settings.SMS_RECEIVER_HOST if host is None else host
        self._port = settings.SMS_RECEIVER_PORT if port is None else port
        self._refresher = ThreadLoop("refresher", self._refresh, every=_REFRESH_SECONDS)
        # These alerts ask the database, which may hang: no Report may wait for that.
        self._refusals = ThreadLoop(
            "refusals", self.authentication.report_refused, every=_REFUSALS_SECONDS
        )
        self._next_report, self._next_late = Every(presence.REPORT_SECONDS), Every(_LATE_SECONDS)
        self._next_port_warning = Every(_PORT_SECONDS)

    @property
    def port(self) -> int:
        return self.server.port if self.server else 0

    def start(self) -> None:
        allow_sockets(MAX_IN_ALL)  # the limit of open files may be lower
        self.net.start()
        self.arrivals.start()
        self._refresher.start()
        self._refusals.start()

    def _refresh(self) -> None:
        self.directory.refresh()
        self.authentication.networks.refresh()
        self.net.call(self.authentication.drop_outdated)

    def turn(self) -> bool:
        """Make requests safe and answer them; waits itself when there are none. Asks the database
        only while there is no gateway at all."""
        if not self.directory.known.receiving:
            self._refresh()
        if self.server is None:
            self._listen()
        self.wake_event.clear()
        count = self.arrivals.turn()
        self.heartbeat.done = self.arrivals.done_count
        if self._next_report.take():
            presence.report(self.name, self.authentication.states())
            if self.server:
                presence.note_listener(self.server.port)
        if self._next_late.take():
            mo_intake.take_late()
        if not count:
            self.wake_event.wait(_WAIT_SECONDS)
        return True

    def drain(self, deadline: float) -> None:
        """Answer the requests that came. Gateways repeat later ones to another receiver."""
        while self.arrivals.open_count and time.monotonic() < deadline:
            self.wake_event.clear()
            count = 0
            try:
                count = self.arrivals.turn()
            except UNAVAILABLE as error:
                log.warning("draining_waits", why=str(error)[:200])
            if not count:  # Redis is unavailable, or MOs wait for an unavailable database
                self.wake_event.wait(0.1)

    def stop(self) -> None:
        self._refresher.stop()
        self._refusals.stop()
        self.arrivals.stop()
        if self.server is not None:
            try:
                self.net.run(self.server.stop(), 5.0)
            except TimeoutError:
                log.warning("server_not_closed")
        self.net.stop()

    def _listen(self) -> None:
        """Listens, unless another program has the port: the next turn tries again."""
        # Do not share the port: the kernel would divide the connections of two platforms' gateways.
        try:
            is_shared = self._port and is_in_use(self._host, self._port)
        except OSError as error:  # such as an address of another machine
            place = f"SMS_RECEIVER_HOST={self._host}, SMS_RECEIVER_PORT={self._port}"
            raise OSError(f"{place} cannot be used: {error}") from error
        if is_shared and not presence.is_own_port(self._port):
            # Another receiver of this platform that began a moment ago may not be registered yet.
            if self._next_port_warning.take():
                why = "another program of this machine has it, such as a second platform: "
                log.warning("port_in_use", port=self._port, why=why + "set SMS_RECEIVER_PORT")
            return
        auth = self.authentication
        auth.networks.refresh()  # before the first connection, which would count as a stranger's
        server = Server(
            sgip.Side.SP, auth.check, auth, admit=auth.admit, max_connections=MAX_IN_ALL,
            peer=lambda connection, _: auth.login_gateways[connection].id,  # some share a login
        )  # fmt: skip
        self.net.run(server.start(self._host, self._port, reuse_port=True))
        self.server = server
        log.info("listening", host=self._host, port=server.port)
