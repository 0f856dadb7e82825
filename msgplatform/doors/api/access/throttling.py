"""Limits for the requests of an API key: fixed windows, counted in Redis.

For a key that is far from its limit some writes are counted ahead, a reserve, so that the fast
intake (`web/fast_intake.py`) need not ask Redis. While Redis is unavailable every request passes:
the limit protects the platform, and must not stop it.
"""

import ipaddress
import math
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from django.http import HttpRequest
from rest_framework.exceptions import Throttled
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from msgplatform.core import logging
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.rates.shared import Quota, Rate, Usage, parse_rate
from msgplatform.core.web import long_polls
from msgplatform.doors.api.access.key_cache import ApiCaller

log = logging.get(__name__)


class _Reserve(msgspec.Struct):
    """Writes of a key that Redis has counted already and that have not come yet."""

    remaining: int
    until: float  # monotonic seconds
    # Writes that were left in the key's window, beside the reserve, at the count; None if Redis did
    # not answer.
    left_in_window: int | None = None


# Seconds without a question to Redis after a failure: if Redis hangs, not every request may wait
# for its timeout.
PAUSE_SECONDS = 5.0
_paused_until = 0.0
# A reserve is the limit divided by this, for the length of a window. By so many requests a process
# may refuse a key too early, or too late.
_RESERVES_IN_LIMIT = 100
_MAX_RESERVES = 10_000  # maximum of keys in `_reserves`
_reserves: dict[int, _Reserve] = {}
_counting = threading.Lock()

# A key of a request's META, with the headers that show the caller the distance to the limit.
HEADERS = "msgplatform.rate_limit"
# A peer that reports other callers may send this many times an address's limit of wrong keys.
_CALLERS_OF_A_PROXY = 20
# An address in X-Forwarded-For with its port, as some balancers of clouds write it.
_WITH_PORT = re.compile(r"^(?:\[(.+)\](?::\d+)?|([\d.]+):\d+)$")

_quota = Quota(work_redis)


def _rate(scope: str) -> Rate | None:
    return parse_rate(api_settings.DEFAULT_THROTTLE_RATES.get(scope))


def seconds_to_wait(key: str, rate: Rate, add: int = 1) -> float:
    """Seconds until another request may pass; 0 for now, or while Redis is unavailable."""
    usage = _take(key, rate, add)
    return usage.wait if usage else 0.0


def is_within(key: str, rate: Rate) -> bool:
    """True if another request may pass, and Redis has confirmed that."""
    usage = _take(key, rate)
    return usage is not None and not usage.wait


def _take(key: str, rate: Rate, add: int = 1) -> Usage | None:
    """Count `add` requests. None while Redis is unavailable."""
    global _paused_until
    if time.monotonic() < _paused_until:
        return None
    try:
        return _quota.spend(f"throttle:{key}", rate.limit, rate.seconds, add)
    except RedisError as error:
        _paused_until = time.monotonic() + PAUSE_SECONDS
        log.warning("throttle_off", why=str(error)[:200], seconds=PAUSE_SECONDS)
        return None


def client_address(request: HttpRequest | Request) -> str:
    """The caller's address: the peer's, or the address that NUM_PROXIES trusted proxies report."""
    header: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    return reported_address(request.META.get("REMOTE_ADDR", ""), header)


def reported_address(peer: str, forwarded: str) -> str:
    """The address that NUM_PROXIES trusted proxies report in X-Forwarded-For; else the peer's."""
    proxies: int = api_settings.NUM_PROXIES or 0
    hops = [address for hop in forwarded.split(",") if (address := hop.strip())]
    if not proxies or not hops:
        return peer
    return _WITH_PORT.sub(r"\1\2", hops[-min(proxies, len(hops))])


def is_allowed_without_redis(caller: ApiCaller) -> bool:
    """True if a write of this key passes without asking Redis. Called only in the event loop."""
    if _rate("write") is None:
        return True
    reserve = _reserves.get(caller.key_id)
    if reserve is None:
        if len(_reserves) >= _MAX_RESERVES:
            _reserves.clear()
        # This entry tells `_fill_reserve`, in Django's threads, to make a reserve for the key.
        _reserves[caller.key_id] = _Reserve(0, 0.0)
        return False
    if reserve.remaining <= 0 or time.monotonic() >= reserve.until:
        return False
    reserve.remaining -= 1
    return True


def give_back(caller: ApiCaller) -> None:
    """Put back into the reserve a write that `is_allowed_without_redis` let pass: Django counts the
    write itself. Called only in the event loop."""
    if _rate("write") is not None:
        _reserves[caller.key_id].remaining += 1


def headers_without_redis(caller: ApiCaller) -> dict[str, str]:
    """The headers for a write that `is_allowed_without_redis` let pass, as exact as the reserve
    allows. Called only in the event loop."""
    rate, reserve = _rate("write"), _reserves.get(caller.key_id)
    if rate is None or reserve is None or reserve.left_in_window is None:
        return {}
    remaining = reserve.remaining + reserve.left_in_window
    return _headers(rate, remaining, reserve.until - time.monotonic())


def _headers(rate: Rate, remaining: int, reset: float) -> dict[str, str]:
    """The headers of draft-ietf-httpapi-ratelimit-headers-06."""
    return {
        "RateLimit-Limit": str(rate.limit),
        "RateLimit-Remaining": str(max(0, remaining)),
        "RateLimit-Reset": str(max(0, math.ceil(reset))),
    }


def _fill_reserve(caller: ApiCaller, rate: Rate) -> None:
    """Fill the key's reserve after a write that was allowed, if the fast intake has asked for the
    key and the reserve is within the limit."""
    size = rate.limit // _RESERVES_IN_LIMIT
    with _counting:
        reserve = _reserves.get(caller.key_id)
        if not size or reserve is None:
            return
        if reserve.remaining > 0 and time.monotonic() < reserve.until:
            return
        usage = _take(f"write:key:{caller.key_id}", rate, size)
        if usage is None:
            _reserves[caller.key_id] = _Reserve(size, time.monotonic() + rate.seconds)
        elif usage.is_allowed:
            _reserves[caller.key_id] = _Reserve(
                size, time.monotonic() + usage.reset, usage.remaining
            )


class ApiKeyThrottle(BaseThrottle):
    """Scope `read` for safe methods, `write` for the others; per API key, else per address."""

    waiting = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        scope = "read" if request.method in SAFE_METHODS else "write"
        rate = _rate(scope)
        if rate is None:
            return True
        caller = request.user
        origin = (
            f"key:{caller.key_id}"
            if isinstance(caller, ApiCaller)
            else f"address:{network_of(client_address(request))}"
        )
        # A long poll that has waited was counted at its arrival.
        has_waited = bool(request.META.get(long_polls.HAS_WAITED))
        usage = _take(f"{scope}:{origin}", rate, 0 if has_waited else 1)
        if usage:
            request.META[HEADERS] = _headers(rate, usage.remaining, usage.reset)
            self.waiting = 0.0 if has_waited else usage.wait
        if self.waiting == 0 and scope == "write" and isinstance(caller, ApiCaller):
            _fill_reserve(caller, rate)
        return self.waiting == 0

    def wait(self) -> float:
        """Rounded up: a caller who waits as long as Retry-After says is let in."""
        return math.ceil(self.waiting)


def count_wrong_keys(request: HttpRequest | Request, add: int) -> None:
    """Count `add` wrong keys of this caller. Raises Throttled when there were too many."""
    rate = _rate("failed")
    if rate is None:
        return
    # All limits are checked before any counts: a request that a limit refuses counts for no limit.
    for count in sorted({0, add}):
        for origin, limit in origins(request, rate):
            if waiting := seconds_to_wait(f"failed:{origin}", limit, count):
                raise Throttled(math.ceil(waiting))


def origins(request: HttpRequest | Request, rate: Rate) -> Iterator[tuple[str, Rate]]:
    """The origins for which a wrong attempt counts, each with its limit: the caller's address;
    with an X-Forwarded-For and no configured proxy the peer, then the caller that it reports.

    The report may be a lie, so that the peer has a limit too. Behind a proxy that is not configured
    all callers share one peer: with one limit a single guesser would lock out everybody else.
    """
    address = network_of(client_address(request))
    header: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    last_hop = "" if api_settings.NUM_PROXIES else header.rpartition(",")[2].strip()
    caller_address = _WITH_PORT.sub(r"\1\2", last_hop)
    if not caller_address:
        yield address, rate
        return
    yield f"peer {address}", Rate(rate.limit * _CALLERS_OF_A_PROXY, rate.seconds)
    yield f"{address} for {network_of(caller_address)[:64]}", rate


def network_of(address: str) -> str:
    """The network that counts as one caller: an IPv4 address, or the /64 of an IPv6 line."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return address
    if ip.ipv4_mapped:  # all IPv4-mapped addresses share one /64
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))
