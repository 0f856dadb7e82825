"""Each wrong login from an address doubles the time for which the address is kept out. From an
address of a known gateway only the wrong login's name is kept out."""

import time
from collections import OrderedDict, deque

import msgspec

from msgplatform.core import alerts, logging
from msgplatform.core.lazy_text import lazy_message

log = logging.get(__name__)

FIRST_DELAY, MAX_DELAY = 0.5, 60.0  # seconds
# Seconds without a wrong login after which an address begins anew.
_FORGET_SECONDS = 600.0
_MAX_ADDRESSES = 4096  # maximum of addresses; the one with the oldest wrong login is forgotten
ALERT_AT = 10  # wrong logins


class _Guesses(msgspec.Struct):
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class WrongLogins:
    """Counts wrong logins, in the net's loop. A right login does not take the count back: an
    attacker who knows one password might guess another between two right logins."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, _Guesses] = OrderedDict()
        self._to_report: deque[tuple[str, int]] = deque()

    def is_delayed(self, address: str) -> bool:
        """True if the next login from an address still has to wait."""
        guesses = self._by_address.get(address)
        return guesses is not None and time.monotonic() < guesses.until

    def add(self, address: str, **context: object) -> None:
        """Count a wrong login. `context` is for the log, which has a line at 1, 2, 4, 8 …
        logins."""
        now = time.monotonic()
        guesses = self._by_address.setdefault(address, _Guesses())
        self._by_address.move_to_end(address)
        if now - guesses.last > _FORGET_SECONDS:
            guesses.count = 0
        guesses.count += 1
        delay = min(MAX_DELAY, FIRST_DELAY * 2 ** min(guesses.count - 1, 32))
        guesses.last, guesses.until = now, now + delay
        is_logged = guesses.count & (guesses.count - 1) == 0
        if is_logged:
            log.warning(
                "login_refused", address=address, count=guesses.count, delay=delay, **context
            )
        # Raise the alert again with each log line: the database may have been unavailable before.
        if guesses.count == ALERT_AT or (is_logged and guesses.count > ALERT_AT):
            self._to_report.append((address, guesses.count))
        if len(self._by_address) > _MAX_ADDRESSES:
            self._by_address.popitem(last=False)

    def raise_alerts(self) -> None:
        """Raise the alerts that are due. It asks the database: never called in the net's loop."""
        while self._to_report:
            address, count = self._to_report.popleft()
            alerts.raise_alert(
                "sms.login",
                lazy_message(
                    "Somebody at %(address)s tries passwords of gateways", address=address
                ),
                lazy_message(
                    "%(count)d wrong logins. Each one doubles the time until the next. If it "
                    "is a gateway of yours, correct the SMG's login in the console; else block "
                    "the address, and narrow the networks of your gateways.",
                    count=count,
                ),
                key=f"sms.login:{address}",
            )
