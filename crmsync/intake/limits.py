"""Limits on leads without an API key: for an address, where every attempt counts, and for a landing
page, where only stored leads count."""

import math

from django.conf import settings

from msgplatform.core import logging
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.rates.shared import Quota, parse_rate
from msgplatform.doors.api.access.throttling import network_of

log = logging.get(__name__)

_quota = Quota(work_redis)


def wait_of_address(address: str) -> int:
    """Whole seconds until the address may send another lead; 0: now, and the attempt is counted.
    An IPv6 address counts as its /64."""
    return _wait(f"crm-leads:address:{network_of(address)}", settings.CRM_RATE_PER_IP)


def wait_of_page(appkey: str, address: str) -> int:
    """Whole seconds until a landing page may store another lead; 0: now, and the lead is counted.

    When the page's limit is spent, an address that has stored nothing within a minute may store
    one: a few busy addresses must not close the page for all others.
    """
    is_first = _wait(f"crm-leads:first:{appkey} {network_of(address)}", "1/min") == 0
    wait = _wait(f"crm-leads:page:{appkey}", settings.CRM_RATE_APPKEY)
    return 0 if is_first else wait


def _wait(key: str, limit: str) -> int:
    """Seconds until another lead may come. 0 while Redis is unavailable: leads count for more than
    the limit."""
    rate = parse_rate(limit)
    if rate is None:
        return 0
    try:
        return math.ceil(_quota.spend(key, rate.limit, rate.seconds).wait)
    except RedisError as error:
        log.warning("lead_limit_off", why=str(error)[:200])
        return 0
