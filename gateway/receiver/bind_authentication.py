"""Decides which connections the receiver keeps, and to which gateway each belongs.

A connection from an address of no gateway (a stranger) is closed at accept, before a byte is read.
A connection from a gateway's network has a few seconds to log in, and gateways have no more
connections than they need. When connections without a login take the last place of their address,
the oldest of them is closed.

    accept ─ admit ─▶ silent ─ check: the login is right ─▶ checked ─ Bound ─▶ bound ─▶ closed
       │                │ no login in time, a wrong one, displaced by a newer one        ▲
       └▶ closed        └────────────────────────────────────────────────────────────────┘
"""

import hmac
import socket
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from concurrent.futures import Future, wait
from functools import partial
from ipaddress import ip_network

from gateway import sgip
from gateway.directory import Directory, Gateway
from gateway.inbox.arrivals import Arrivals, Request
from gateway.net import Connection
from gateway.presence import LinkState
from gateway.receiver.wrong_logins import WrongLogins
from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bounded_call
from msgplatform.core.daemons.timer import Every
from msgplatform.core.http.addresses import Network, is_inside
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import Alert

log = logging.get(__name__)

# Maximum of one gateway's connections in this process. SGIP's own gateways use at most 15.
MAX_CONNECTIONS = 32
# Maximum of an address's connections for each of its gateways, and of all connections. The last
# places are kept for addresses from which a gateway has logged in.
MAX_FROM_ADDRESS = 2 * MAX_CONNECTIONS
MAX_IN_ALL, RESERVED_PLACES = 1024, 256
_MAX_KNOWN = 1024  # addresses from which a gateway has logged in; the oldest is forgotten
_STRANGER = "sms.stranger"
_LOG_SECONDS = 10.0
_ALERT_SECONDS = 3600.0
# Seconds between looks: another receiver may have raised the alert, or a person closed it.
_LOOK_SECONDS = 60.0
# Seconds for which a host name's addresses are used before the resolver is asked again.
_NAME_SECONDS = 60.0
# Seconds for which names that are not answered hold up the other gateways.
_PATIENCE_SECONDS = 2.0


class BindAuthentication:
    """Runs in the net's loop, except `states`, which only reads, and `report_refused`, which takes
    what the loop has counted."""

    def __init__(self, directory: Directory, arrivals: Arrivals) -> None:
        self._directory, self._arrivals = directory, arrivals
        self.networks = Networks(directory)
        self.wrong_logins = WrongLogins()
        # Gateways as they were at the login: of bound ones, and since when; of others until bound.
        self._gateways: dict[Connection, tuple[Gateway, float]] = {}
        self.login_gateways: dict[Connection, Gateway] = {}
        # By address: the number of connections, and the connections without a login, oldest first.
        self._connection_counts: Counter[str] = Counter()
        self._silent: defaultdict[str, OrderedDict[Connection, None]] = defaultdict(OrderedDict)
        self._known_addresses: OrderedDict[str, None] = OrderedDict()
        self._refusals: Counter[str] = Counter()
        self._last_stranger = ""
        self._alert_stranger = ""  # the open alert's stranger, read now and then
        self.next_log, self._next_alert = Every(_LOG_SECONDS), Every(_ALERT_SECONDS)
        self.next_look = Every(_LOOK_SECONDS)

    def admit(self, connection: Connection) -> bool:
        """True if the connection may stay, for now."""
        address = connection.address
        if why := self._objection(address):
            self._refusals[why] += 1
            return False
        self._connection_counts[address] += 1
        self._silent[address][connection] = None
        return True

    def _objection(self, address: str) -> str:
        """The reason for the log why a connection from an address is closed at once; '' if it
        stays."""
        # The cheap checks come first.
        gateways = self.networks.gateways(address)
        if not gateways:
            self._last_stranger = address
            return "stranger"
        if address not in self._known_addresses and self.wrong_logins.is_delayed(address):
            return "delayed"
        places = MAX_IN_ALL if address in self._known_addresses else MAX_IN_ALL - RESERVED_PLACES
        if self._connection_counts.total() >= places and not self._displace(address):
            return "full"
        limit = MAX_FROM_ADDRESS * len(gateways)
        if self._connection_counts[address] >= limit and not self._displace(address):
            return "too_many"
        return ""

    def _displace(self, address: str) -> bool:
        """Close the oldest connection without a login from an address. True if there was one."""
        silent = self._silent.get(address)
        if not silent:
            return False
        oldest = next(iter(silent))
        self._leave(oldest)
        self._refusals["displaced"] += 1
        oldest.drop()
        return True

    def check(self, connection: Connection, bind: sgip.Bind) -> int:
        """The Result for a Bind, whose type is right."""
        address = connection.address
        # Gateways may share an address: a wrong login of one must not keep the others out.
        guesser = f"{address} ({bind.login_name})" if address in self._known_addresses else address
        if self.wrong_logins.is_delayed(guesser):  # `admit` did not ask this for known addresses
            self._refusals["delayed"] += 1
            return sgip.LOGIN_TOO_FREQUENT
        gateway = self._gateway_of(connection, bind)
        if gateway is None:
            self.wrong_logins.add(guesser, name=bind.login_name)
            return int(sgip.Result.LOGIN)
        self.login_gateways[connection] = gateway
        # The login is right: a refusal from here on is no guess and causes no delay.
        connection_count = sum(1 for other, _ in self._gateways.values() if other.id == gateway.id)
        if connection_count >= MAX_CONNECTIONS:
            self._refusals["too_many"] += 1
            return int(sgip.Result.TOO_MANY_CONNECTIONS)
        return int(sgip.Result.OK)

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        requests: list[Request] = []
        closed_event: sgip.Closed | None = None
        for event in events:
            if isinstance(event, Request):
                requests.append(event)
            elif type(event) is sgip.Bound:
                address = connection.address
                self._gateways[connection] = (self.login_gateways.pop(connection), time.time())
                self._silent[address].pop(connection, None)
                self._known_addresses[address] = None
                self._known_addresses.move_to_end(address)
                if len(self._known_addresses) > _MAX_KNOWN:
                    self._known_addresses.popitem(last=False)
                log.info("smg_bound", name=event.bind.login_name, peer=connection.peer)
            elif type(event) is sgip.BindRefused and event.result == sgip.Result.LOGIN_TYPE:
                self._refusals["login_type"] += 1  # `check` counts all other refusals
            elif type(event) is sgip.Ignored and connection in self._gateways:
                self._arrivals.log_refused(connection, event)
            elif type(event) is sgip.Closed:
                closed_event = event
        if requests:
            self._arrivals.put(connection, self._gateways[connection][0].id, requests)
        # Close last: requests that came with the end of the connection still belong to the gateway.
        if closed_event:
            self.login_gateways.pop(connection, None)
            if self._gateways.pop(connection, None) is not None:
                self._leave(connection)
                if closed_event.error:
                    log.warning("smg_closed", peer=connection.peer, why=str(closed_event.error))
            elif connection in self._silent.get(connection.address, ()):  # it was not displaced
                self._leave(connection)
                if closed_event.reason is not sgip.CloseReason.REFUSED:
                    self._refusals["without_login"] += 1

    def drop_outdated(self) -> None:
        """Drop bound connections that could not log in as their gateways are now."""
        for connection, (login_gateway, _since) in self._gateways.items():
            gateway = self._directory.known.receiving.get(login_gateway.id)
            if (
                gateway is None
                or gateway.row.smg_login_name != login_gateway.row.smg_login_name
                # None: it cannot be decrypted.
                or gateway.smg_login_password not in (None, login_gateway.smg_login_password)
                # New addresses of the same host end no connection.
                or ((gateway.networks or login_gateway.networks)
                    and not self.networks.is_allowed(gateway.id, connection.address))
            ):  # fmt: skip
                log.warning("smg_dropped", peer=connection.peer, why="its gateway was changed")
                connection.drop()

    def states(self) -> Iterable[LinkState]:
        now = time.time()
        # A gateway whose password cannot be decrypted cannot log in: the console shows why.
        unusable = [
            LinkState(gateway.id, "report", "", now, problem=gateway.problem)
            for gateway in self._directory.known.receiving.values()
            if gateway.smg_login_password is None
        ]
        return unusable + [
            LinkState(gateway.id, "report", connection.peer, since)
            for connection, (gateway, since) in list(self._gateways.items())
        ]

    def report_refused(self) -> None:
        """Log, once in a while and in one line, the refused connections. It asks the database, and
        is called in a thread of its own."""
        self.wrong_logins.raise_alerts()
        if self.next_look.is_due:
            # The stranger of the open alert, '' when there is none.
            message = (
                Alert.objects.filter(open_key=_STRANGER).values_list("said", flat=True).first()
                or {}
            )
            text = message.get("text")
            self._alert_stranger = str(text[1].get("address", "")) if isinstance(text, list) else ""
            self.next_look.restart()
        if self._alert_stranger in self._known_addresses:  # it is a gateway's now
            self._alert_stranger = ""
            alerts.resolve(_STRANGER)
        if not self._refusals or not self.next_log.take():
            return
        refusals, self._refusals = self._refusals, Counter()
        stranger = self._last_stranger
        log.warning("connections_refused", **refusals, last_stranger=stranger)
        if refusals["stranger"] and self._next_alert.take():
            self._alert_stranger = stranger
            alerts.raise_alert(
                _STRANGER,
                lazy_message(
                    "Connections to the SMS receiver from addresses that are no gateway's"
                ),
                lazy_message(
                    "%(count)d lately, the last from %(address)s. If that is a gateway of "
                    "yours, add the address to its networks in the console; else close the "
                    "port to it.",
                    count=refusals["stranger"],
                    address=stranger,
                ),
                key=_STRANGER,
            )

    def _leave(self, connection: Connection) -> None:
        """Free the connection's place. An address without connections is forgotten."""
        address = connection.address
        if silent := self._silent.get(address):
            silent.pop(connection, None)
        self._connection_counts[address] -= 1
        if self._connection_counts[address] <= 0:
            self._connection_counts.pop(address, None)
            self._silent.pop(address, None)

    def _gateway_of(self, connection: Connection, bind: sgip.Bind) -> Gateway | None:
        """The gateway with this login that may connect from the address. All gateways are compared,
        each in constant time, so that the duration reveals none. The oldest enabled gateway of
        several with this login counts."""
        match = None
        gateways = self._directory.known.receiving.values()
        for gateway in sorted(gateways, key=lambda entry: (entry.row.enabled, -entry.id)):
            name = _same(bind.login_name, gateway.row.smg_login_name)
            password = gateway.smg_login_password
            is_right = _same(bind.login_password, password or "") & name and password is not None
            if is_right and self.networks.is_allowed(gateway.id, connection.address):
                match = gateway
        return match


class Networks:
    """The addresses from which each gateway may connect: its networks, or else its own host.

    `refresh` asks the resolver, and waits for it: never in the net's loop, which only reads. The
    dict that it reads is replaced as a whole.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._by_gateway: dict[int, tuple[Network, ...]] = {}
        self._hosts: dict[str, tuple[Network, ...]] = {}
        self._lookups: dict[str, tuple[Future[None], float]] = {}  # and when the next one is due

    def refresh(self) -> None:
        """Take over changes in the console, and the present addresses of names. A name without an
        answer after a moment keeps its last addresses, and is looked up beside all others."""
        gateways = self._directory.known.receiving.values()
        hosts = {str(gateway.row.host) for gateway in gateways if not gateway.networks}
        wait([self._lookup(host) for host in hosts], _PATIENCE_SECONDS)
        self._by_gateway = {
            gateway.id: gateway.networks or self._hosts.get(str(gateway.row.host), ())
            for gateway in gateways
        }

    def is_allowed(self, gateway: int, address: str) -> bool:
        """True if this gateway may connect from the address."""
        return is_inside(address, self._by_gateway.get(gateway, ()))

    def gateways(self, address: str) -> Collection[int]:
        """The gateways that may connect from an address; none for a stranger's."""
        return [gateway for gateway in self._by_gateway if self.is_allowed(gateway, address)]

    def _lookup(self, host: str) -> Future[None]:
        """The host's last lookup, or a new one if that is due."""
        lookup, due = self._lookups.get(host, (None, 0.0))
        now = time.monotonic()
        if lookup is None or (lookup.done() and now >= due):
            lookup = bounded_call.begin(partial(self._resolve, host))
            self._lookups[host] = lookup, now + _NAME_SECONDS
        return lookup

    def _resolve(self, host: str) -> None:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            self._hosts[host] = tuple(
                {ip_network(str(address[0]).partition("%")[0]) for *_, address in answers}
            )
        except (OSError, ValueError) as error:  # the addresses known before stay
            log.warning("gateway_host_unknown", host=host, why=str(error)[:200])


def _same(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())
