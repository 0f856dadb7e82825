"""The page of a refused person, with the reason and whom to ask. The log gets a line, and the audit
log an entry."""

from http import HTTPStatus
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from msgplatform.core import logging
from msgplatform.core.rates.shared import Rate
from msgplatform.doors.api.access import throttling
from msgplatform.models import AuditLog

log = logging.get(__name__)

# Anybody can cause these entries, which are kept for ever: maximum of entries, in so many seconds.
_OF_ONE = Rate(20, 300)
_OF_ALL = Rate(200, 300)


def refuse(
    request: HttpRequest,
    reason: str,
    text: str,
    *,
    advice: str = "",
    who: str = "",
    status: HTTPStatus = HTTPStatus.FORBIDDEN,
    **detail: Any,
) -> HttpResponse:
    """The page with `text`, and `advice` what to do. `reason` is a word for logs; `who` is the name
    of the person as far as it is known, `detail` goes into the audit log."""
    address = throttling.client_address(request)
    log.warning("sign_in_refused", reason=reason, address=address, **detail)
    # While Redis is unavailable nobody counts, and no entry is kept either.
    network = throttling.network_of(address)
    if throttling.is_within(f"sign-in:refused:{network}", _OF_ONE) and throttling.is_within(
        "sign-in:refused", _OF_ALL
    ):
        AuditLog.record(who or "-", "sign_in_refused", reason, **detail)
    context = {**admin.site.each_context(request), "site_url": "", "text": text, "advice": advice}
    return render(request, "console/sign_in_refused.html", context, status=status)
