"""Send chosen messages of the archive once more: a few at once, or one and follow it.

Many are a bulk job's work, which can be paced and stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import messages
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, ngettext

from gateway.actions import resend
from gateway.messages import resent
from gateway.models import SgipMt
from gateway.monitor.failures import RESENDABLE
from msgplatform.admin import audit, audit_messages, cells
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import PlatformError

log = logging.get(__name__)

MOST = 500  # at once
_LINKED = 10  # more are found in the list


def send(request: HttpRequest, rows: Sequence[SgipMt]) -> list[str]:
    """Send them, show what was done, and record who did it; ids of the first new messages."""
    try:
        refused = ""
        for state in RESENDABLE:  # a bulk job's filter names one state
            ids = [str(row.pk) for row in rows if row.final == state]
            if ids:
                given = {"ids": ",".join(ids), "state": state}
                begun = resend.ACTION.step(given, "", len(ids))
                step = resend.ACTION.step(given, begun.cursor, len(ids))
                refused = refused or step.left_because
        # Of those that were left alone nothing is recorded.
        repeats = resent.repeats((row.biz_id, row.pk) for row in rows if row.final in RESENDABLE)
    except (RedisError, PlatformError) as error:
        log.warning("resend_failed", why=str(error)[:200])
        messages.error(
            request, gettext("Sending failed. Try again: no message is sent twice. %s") % error
        )
        return []
    new = list(repeats.values())[:_LINKED]
    if repeats:
        audit(request, "sms_sent_again", str(len(repeats)), ids=[str(pk) for pk in repeats])
        audit_messages(request, "sms", list(repeats))
    _show_result(request, len(repeats), len(rows) - len(repeats), new, refused)
    return new


def _show_result(
    request: HttpRequest, count: int, left: int, new: Sequence[str], refused: str
) -> None:
    if count:
        text = ngettext("%d message is sent again:", "%d messages are sent again:", count) % count
        links = format_html_join(", ", "{}", ((cells.message_link("sms", id),) for id in new))
        more = ", …" if count > len(new) else ""
        messages.success(request, format_html("{} {}{}", text, links, more))
    if left and refused:
        text = ngettext(
            "%(count)d was left alone: %(why)s.",
            "%(count)d were left alone, one because: %(why)s.",
            left,
        )  # fmt: skip
        messages.warning(request, text % {"count": left, "why": refused})
    elif left:
        text = ngettext(
            "%d was left alone: a message is sent again only if it failed, expired or is unknown, "
            "is at most 30 days old, and has an account that is enabled.",
            "%d were left alone: a message is sent again only if it failed, expired or is unknown, "
            "is at most 30 days old, and has an account that is enabled.",
            left,
        )
        messages.warning(request, text % left)
