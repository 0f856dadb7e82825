"""The page of one message, hot or archived: facts, recipients, timeline, payload."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django.db.models import Count
from django.utils.translation import gettext as _, ngettext, pgettext

from msgplatform.core import flows
from msgplatform.core.durations import age
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import BulkAction
from msgplatform.core.flows.page import Call, File, Page, PageLink, TimelineEntry
from msgplatform.core.intake.idempotency import key_of
from msgplatform.core.json import text as json_text
from msgplatform.core.lazy_text import join_words
from msgplatform.jobs.models import BulkJob
from msgplatform.messages.filters import number, read_filter
from msgplatform.models import Biz
from notify.archive import stores
from notify.archive.stores import Store, reading
from notify.maker import ending
from notify.messages import explanations, recipients
from notify.messages.filtered import filtered_out
from notify.messages.states import Status, answer, consumer_name, local
from notify.models import BizMsg, IdempotencyKey, ReceiveMsg, RestoredMsg

T = TypeVar("T")
_MAX_JOBS = 50  # the latest bulk jobs; each costs a few statements
_RESENDING = ("resend", "replay", "replay_failed")  # actions
_COMMAND_BYTES = 64 * 1024  # larger payloads are not in the command that repeats a request


def page(id_text: str, after: str = "") -> Page | None:
    """The page, with the recipients after the cursor `after`. Raises Unavailable when the message
    is not in the hot tables and the archive cannot be read, and InvalidInput for a wrong cursor."""
    return _read(id_text, lambda store, message: _page(store, message, after))


def file(id_text: str) -> File | None:
    """The whole payload of a message, byte for byte. Raises as `page` does."""
    return _read(
        id_text,
        lambda _store, message: File(
            f"{message.event_type}-{message.pk}.json", "application/json", bytes(message.payload)
        ),
    )


def _read(id_text: str, build: Callable[[Store, Any], T]) -> T | None:
    """The result of `build` for the message; None for an unknown id."""
    try:
        message_id = number(id_text)
    except InvalidInput:
        return None
    for store in stores.both():
        with reading(store):
            message = store.messages.filter(id=message_id).first()
            if message is not None:
                stores.unseal(message)
                return build(store, message)
    return None


def _page(store: Store, message: Any, after: str) -> Page:
    deliveries, cursor = recipients.read(store, message.pk, after)
    circumstances = explanations.Circumstances.of(deliveries)
    attempts = recipients.attempts_of(store, deliveries)
    counts = dict(
        store.deliveries_of([message.pk]).order_by().values_list("status").annotate(Count("id"))
    )
    biz = Biz.objects.filter(id=message.biz_id).first()
    state = pgettext("state", "archived") if store.cold else str(BizMsg.State(message.state).label)
    # The deliveries say more than "split".
    is_distributed = not store.cold and message.state == BizMsg.State.DISTRIBUTED
    parts = [f"{count} {Status(status).label}" for status, count in sorted(counts.items())]
    # The hot table keeps a key for some time; the archive keeps the key with the message.
    key = message.key if store.cold else key_of(IdempotencyKey, message.pk)
    timeline = [TimelineEntry(message.created_at, _("Accepted"), "accepted")]
    timeline += _entries(deliveries, attempts, circumstances)
    timeline += _covering_jobs(message, deliveries)
    if store.cold:
        restored_at = message.restored_at
    else:
        restored_rows = RestoredMsg.objects.filter(id=message.pk)
        restored_at = restored_rows.values_list("restored_at", flat=True).first()
    if restored_at:
        timeline.append(TimelineEntry(restored_at, _("Brought back from the archive"), "accepted"))
    if store.cold:
        timeline.append(TimelineEntry(message.archived_at, _("Archived"), "done"))
    call, payload = None, bytes(message.payload)
    if len(payload) <= _COMMAND_BYTES:
        fields = {"event_type": message.event_type}
        fields |= {"channel": message.channel} if message.channel else {}
        call = Call.of_intake(
            _("Publish this once more with curl"), "/api/v1/messages",
            json_text.with_raw(fields, "payload", payload.decode("utf-8", "replace")),
            _("With a key of the business system instead of YOUR_API_KEY; it becomes another "
              "message."),
        )  # fmt: skip
    has_commands = len(payload) * len(deliveries) <= recipients.COMMANDS_BYTES
    excluded_rows = [] if after else filtered_out(store, message)
    return Page(
        id=str(message.pk),
        title=message.event_type,
        facts={
            **({} if is_distributed else {_("State"): state}),
            _("Deliveries"): join_words(parts) or "–",
            _("Accepted"): local(message.created_at),
            _("Business system"): PageLink.to(biz) if biz else str(message.biz_id),
            _("Channel"): message.channel or "–",
            _("Idempotency key"): key or "–",
        },
        body=payload.decode("utf-8", "replace"),
        timeline=sorted(timeline, key=lambda entry: entry.at or message.created_at),
        recipients=[
            *(
                recipients.card(message, row, attempts.get(row.pk, []), circumstances, has_commands)
                for row in deliveries
            ),
            *map(recipients.filtered_card, excluded_rows),
        ],
        recipients_title=_("Subscriptions"),
        recipients_note=recipients.NOTE if attempts else "",
        headline=_headline(message, counts, attempts),
        cursor=cursor,
        no_recipient_reasons=[]
        if counts or excluded_rows
        else list(explanations.no_recipient_reasons(message, biz)),
        resend_effect=_resend_effect(store, message, counts),
        call=call,
        has_file=True,
    )


def _headline(
    message: Any, counts: Mapping[int, int], attempts: Mapping[int, Sequence[Any]]
) -> str:
    """The sentence about all deliveries: their time, or the states of undelivered deliveries."""
    total, delivered_count = sum(counts.values()), counts.get(Status.DELIVERED, 0)
    if not total:
        return ""
    numbers = {"delivered": delivered_count, "total": total}
    newest = [rows[0] for rows in attempts.values() if rows]
    if delivered_count == total == len(newest):
        duration = (
            max(row.at + timedelta(seconds=row.seconds) for row in newest) - message.created_at
        )
        seconds = max(0.0, duration.total_seconds())
        text = _("Delivered to %(delivered)d of %(total)d in %(age)s")
        return text % {**numbers, "age": age(seconds)}
    other_parts = [
        f"{count} {Status(status).label}"
        for status, count in sorted(counts.items())
        if status != Status.DELIVERED
    ]
    return " · ".join([_("Delivered to %(delivered)d of %(total)d") % numbers, *other_parts])


def _covering_jobs(message: Any, deliveries: Sequence[Any]) -> Iterator[TimelineEntry]:
    """Bulk jobs whose filter covers the message, if a delivery was resent. A job stores its filter,
    not its messages."""
    resent_deliveries = [delivery for delivery in deliveries if delivery.generation]
    if not resent_deliveries:
        return
    jobs = BulkJob.objects.filter(
        flow="notify", action__in=_RESENDING, created_at__gte=message.created_at
    )
    for job in jobs.order_by("-id")[:_MAX_JOBS]:
        flow = flows.get(job.flow)
        action = flow and flow.actions.get(job.action)
        if action and _covers(action, job.filter, message, resent_deliveries):
            title = _("Bulk job %(job)d of %(who)s covers it")
            text = title % {"job": job.pk, "who": job.created_by}
            link = PageLink.to(job, str(action.title))
            yield TimelineEntry(job.created_at, text, "linked", link)


def _covers(
    action: BulkAction, filter: Mapping[str, Any], message: Any, deliveries: Sequence[Any]
) -> bool:
    try:
        values = read_filter(action.fields, filter)
    except InvalidInput:  # such as a subscription that was deleted since
        return False
    own_ids = {message.pk, *(delivery.pk for delivery in deliveries)}
    subscriptions = {delivery.biz_receive_id for delivery in deliveries}
    return (
        not own_ids.isdisjoint(values.get("ids", own_ids))
        and values.get("biz", message.biz_id) == message.biz_id
        and values.get("event_type", message.event_type) == message.event_type
        and ("subscription" not in values or values["subscription"] in subscriptions)
        and values.get("since", 0) <= message.pk
        and message.pk < values.get("until", message.pk + 1)
    )


def _entries(
    deliveries: Sequence[Any],
    attempts: Mapping[int, Sequence[Any]],
    circumstances: explanations.Circumstances,
) -> Iterator[TimelineEntry]:
    """Yield the attempts of each delivery, then the delivery's state."""
    for delivery in deliveries:
        subscription = circumstances.subscriptions.get(delivery.biz_receive_id)
        consumer = consumer_name(subscription, delivery.biz_receive_id)
        for attempt in reversed(attempts.get(delivery.pk, ())):
            parts = [answer(attempt), f"{attempt.seconds:.3f} s", attempt.detail]
            title = _("%(consumer)s: attempt %(number)d")
            yield TimelineEntry(
                attempt.at,
                title % {"consumer": consumer, "number": attempt.number},
                "attempt",
                " · ".join(part for part in parts if part),
                attempt.response_body,
            )
        status = Status(delivery.status)
        resend_text = ""
        if delivery.generation:
            text = ngettext("sent again %d time", "sent again %d times", delivery.generation)
            resend_text = text % delivery.generation
        title = f"{consumer}: {status.label}"
        yield TimelineEntry(delivery.updated_at, title, status.name.lower(), resend_text)


def _resend_effect(store: Store, message: Any, counts: Mapping[int, int]) -> str:
    """The sentence about resending to all recipients that failed; '' for a single recipient."""
    unreached_count = sum(counts.get(s, 0) for s in (*ReceiveMsg.FAILED, Status.SKIPPED))
    if counts.get(Status.SKIPPED):
        erased_rows = store.deliveries_of([message.pk]).filter(error=ending.ERASED)
        unreached_count -= erased_rows.count()
    if not unreached_count or sum(counts.values()) == 1:
        return ""
    return ngettext(
        "%d delivery that is exhausted, poison or skipped gets all its attempts anew.",
        "%d deliveries that are exhausted, poison or skipped get all their attempts anew.",
        unreached_count,
    ) % unreached_count  # fmt: skip
