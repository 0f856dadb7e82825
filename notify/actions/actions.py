"""Notify's bulk actions: which deliveries each is about, and what is done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext_lazy as _

from msgplatform.api import filter_fields
from msgplatform.core import flows
from msgplatform.messages.bulk import Select, bulk_action
from notify.actions import backfill, preview, replay
from notify.actions.deliveries import FAILED
from notify.actions.resend import FailedDeliveries, select_message
from notify.messages.fields import EVENT_TYPE, SUBSCRIPTION, statuses
from notify.models import ReceiveMsg


def _action(
    title: flows.Text,
    fields: flows.Fields,
    help: flows.Text,
    select: Select,
    required: Sequence[str] = (),
    of_messages: bool = False,
    **more: Any,
) -> flows.BulkAction:
    return bulk_action(
        select,
        title=title,
        fields=fields,
        help=help,
        required=required,
        describe=preview.messages if of_messages else preview.deliveries,
        show=preview.of_messages if of_messages else preview.of_deliveries,
        outcome=None if of_messages else preview.outcome,
        lines=preview.lines,
        why_waiting=preview.why_waiting,
        **more,
    )


_FAILED = statuses(
    (*FAILED.values(), ReceiveMsg.Status.DELIVERED),
    _("Poison ones need somebody to look at them first; delivered ones are named by their ids"),
    nothing=_("exhausted, unless ids are given"),
)


ACTIONS: Mapping[str, flows.BulkAction] = {
    "resend": _action(
        _("Send failed deliveries again"),
        {
            "subscription": SUBSCRIPTION,
            "biz": filter_fields.BIZ,
            "status": _FAILED,
            "answer": flows.FilterField(
                _("Answer"),
                _("How the last attempt ended, as the page Failures shows it: HTTP 503"),
            ),
            "event_type": EVENT_TYPE,
            "since": filter_fields.SINCE,
            "until": filter_fields.UNTIL,
            "failed_since": filter_fields.FAILED_SINCE,
            "ids": filter_fields.ids(
                _("Ids of deliveries or of messages, at most 500. Without a status: "
                  "exhausted, poison and skipped ones; delivered can be asked for too")
            ),
        },
        _("Each delivery gets all its attempts anew; the log of earlier attempts stays. "
          "Deliveries that are named by id may be archived: they are brought back."),
        FailedDeliveries,
        has_message_ids=True,
        select_message=select_message,
    ),
    "replay": _action(
        _("Replay since a time"),
        {
            "subscription": SUBSCRIPTION,
            "since": filter_fields.SINCE,
            "until": filter_fields.UNTIL,
            "event_type": EVENT_TYPE,
        },
        _("Everything that the subscription should have got is sent again, even what was "
          "delivered. Archived messages are brought back for it."),
        replay.Replay,
        required=("subscription", "since"),
    ),
    "replay_failed": _action(
        _("Replay what never succeeded"),
        {
            "subscription": SUBSCRIPTION,
            "biz": filter_fields.BIZ,
            "since": filter_fields.SINCE,
            "until": filter_fields.UNTIL,
            "event_type": EVENT_TYPE,
        },
        _("Exhausted, poison and skipped deliveries are sent again; deliveries that wait for "
          "another attempt are sent now. Archived messages are brought back for it."),
        replay.ReplayFailed,
        required=("since",),
    ),
    "backfill": _action(
        _("Make missing deliveries"),
        {
            "biz": filter_fields.BIZ,
            "since": filter_fields.SINCE,
            "until": filter_fields.UNTIL,
            "event_type": EVENT_TYPE,
            "subscription": replace(
                SUBSCRIPTION, help=_("Only for this subscription; empty: for all")
            ),
        },
        _("Each message gets the deliveries that it lacks, such as those for a newer "
          "subscription. Existing deliveries and archived messages stay as they are. The count "
          "is of messages that are looked at."),
        backfill.Backfill,
        required=("biz", "since"),
        of_messages=True,
    ),
}  # fmt: skip
