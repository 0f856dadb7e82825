"""Messages of months that the archiver drops; runs in a process of the platform."""

from datetime import timedelta

from django.conf import settings

from msgplatform.core.data import ids, sql
from notify.archive.retention import ARCHIVE
from notify.models import BizMsg, BizReceive, ColdBizMsg, ReceiveMsg
from tests.support import archive_support

_MONTHS, _MESSAGES = 3, 50


def begin_anew() -> None:
    """The archive has no rows, and no months."""
    archive_support.without_months(ARCHIVE)


def publish() -> None:
    subscription = BizReceive.objects.latest("pk")
    for month in range(_MONTHS):
        for _ in range(_MESSAGES):
            days = settings.NOTIFY_ARCHIVE_DAYS + 40 + 30 * month
            archive_support.message(subscription, ReceiveMsg.Status.DELIVERED, days=days)


def count() -> None:
    """Print how many messages are older than the archive keeps."""
    end = ids.first_id_at(sql.now() - timedelta(days=settings.NOTIFY_ARCHIVE_DAYS + 35))
    print(sum(model.objects.filter(id__lt=end).count() for model in (BizMsg, ColdBizMsg)))
