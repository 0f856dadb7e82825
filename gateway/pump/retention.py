"""The time for which the archive of SMS keeps messages, and the messages that it keeps longer.

Parts and Reports are deleted with their message, whatever their age. A Report without a message, an
MO and a user report are deleted by their own age.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SgipMo, SgipMt, SgipMtPart, SgipReport, SgipUserRpt
from msgplatform.core.archive import kept
from msgplatform.core.archive.description import DAY, Archive, Table

# A Report comes when a message has arrived or the operator gives it up, after 72 hours as a rule;
# the longest validity that GSM counts in days is 30. SGIP itself bounds this time only by a year,
# because a sequence has no year.
REPORT_DAYS = 30


def keep_seconds() -> float | None:
    """Seconds from the time of its id until an archived row may be deleted; None: never."""
    return float(settings.SMS_ARCHIVE_DAYS) * DAY or None


def awaits_report(now: datetime) -> Q:
    """Messages that ended as unknown and may still get their real ending."""
    since = now - timedelta(days=REPORT_DAYS)
    return Q(final=SgipMt.Final.UNKNOWN, submitted_at__gt=since)


_PARTS = (Table(SgipMtPart, of="mt_id"), Table(SgipReport, of="mt_id"))

ARCHIVE = Archive(
    "sms",
    (Table(SgipMt, _PARTS, not_final=awaits_report), Table(SgipMo), Table(SgipUserRpt)),
    keep_seconds,
)


def keep_copies_seconds() -> float:
    """Seconds for which the SMS Redis keeps copies of what was archived."""
    return float(settings.SMS_KEEP_ARCHIVED_HOURS) * 3600


def _oldest_copy() -> datetime | None:
    client: Any = sms_redis()
    first = client.zrange(keys.ARCHIVED, 0, 0, withscores=True)
    return datetime.fromtimestamp(first[0][1], UTC) if first else None


def kept_data() -> Sequence[kept.KeptData]:
    """The rows of the page of retention."""
    mts, mos, _user_reports = ARCHIVE.tables
    return (
        kept.of_table(_("archived messages sent"), mts, keep_seconds, "SMS_ARCHIVE_DAYS"),
        kept.of_table(_("archived messages received"), mos, keep_seconds, "SMS_ARCHIVE_DAYS"),
        kept.KeptData(_("copies of archived messages in Redis"), ("SMS_KEEP_ARCHIVED_HOURS",),
                      keep_copies_seconds, _oldest_copy),
    )  # fmt: skip
