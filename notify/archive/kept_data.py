"""Notify's data and the times for which it is kept, for the page Retention."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext_lazy as _

from msgplatform.core.archive import kept
from notify.archive.retention import KEYS, MESSAGES, keep, keep_archived, keep_keys
from notify.models import BizMsg


def kept_data() -> Sequence[kept.KeptData]:
    hot_settings = ("NOTIFY_KEEP_DAYS", "NOTIFY_KEEP_FAILED_DAYS")
    return (
        kept.of_ids(
            _("messages with deliveries and attempts"), BizMsg, keep, *hot_settings,
            ending=kept.ARCHIVED,
        ),
        kept.of_table(_("archived messages"), MESSAGES, keep_archived, "NOTIFY_ARCHIVE_DAYS"),
        kept.of_table(_("idempotency keys"), KEYS.tables[0], keep_keys, "NOTIFY_KEEP_FAILED_DAYS"),
    )  # fmt: skip
