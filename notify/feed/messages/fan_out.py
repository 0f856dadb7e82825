"""The fan-out of a post or of upkeep: one card for all timelines, which are written together."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from msgplatform.core.flows import PageLink, Recipient, TimelineEntry, Tone, Value
from notify.feed.models import EventQueue, Feed
from notify.feed.models.posts import Topic

_STATUS = EventQueue.Status
_TONES: dict[int, Tone] = {
    _STATUS.HANDLED: "good", _STATUS.SET_ASIDE: "bad", _STATUS.IN_SLICES: "plain",
    _STATUS.WAITING: "plain",
}  # fmt: skip
# Events before one are counted up to this.
_AHEAD_MOST = 1000


def of_post(
    post: Feed, event: EventQueue | None, recipients: int, stands: TimelineEntry
) -> Recipient:
    """`stands` says in how many timelines the post is."""
    who = _("friends") if post.topic == Topic.FRIEND else _("friends and followers")
    text = ngettext("%(count)d timeline of %(who)s", "%(count)d timelines of %(who)s", recipients)
    name = text % {"count": recipients, "who": who}
    facts: dict[str, Value] = {_("Now"): stands.title}
    if stands.detail:
        facts[_("Why")] = stands.detail
    if event is None:
        # The cleaner deletes events some time after they were handled.
        return Recipient(
            id=str(post.pk), name=name, state=str(_STATUS.HANDLED.label), tone="good", facts=facts,
            notes=[_("Its event was handled, and is no longer kept.")],
        )  # fmt: skip
    return _card(event, name, facts)


def of_upkeep(event: EventQueue) -> Recipient:
    return _card(event, str(EventQueue.Kind(event.kind).label), {})


def _card(event: EventQueue, name: str, facts: dict[str, Value]) -> Recipient:
    status = _STATUS(event.status)
    facts[_("Event")] = PageLink.to(event)
    if event.position:
        facts[_("Done up to")] = event.position
    again = ""
    if status == _STATUS.SET_ASIDE:
        again = _("It waits for the dispatcher again, and goes on where it failed. No timeline "
                  "gets a post twice.")  # fmt: skip
    return Recipient(
        id=str(event.pk),
        name=name,
        state=str(status.label),
        tone=_TONES[status],
        since=event.handle_date or event.create_date,
        why=_why(event, status),
        facts=facts,
        notes=[_("Tries of an event are not kept, only why the last one failed.")],
        resend_effect=again,
    )


def _why(event: EventQueue, status: EventQueue.Status) -> str:
    if status == _STATUS.SET_ASIDE:
        return _("Set aside until somebody replays it: %s") % (event.reason or "–")
    if status == _STATUS.IN_SLICES:
        return _("It is written in slices, because it has very many recipients.")
    if status == _STATUS.HANDLED:
        return ""
    rows = EventQueue.objects.filter(
        topic=event.topic, status=_STATUS.WAITING, qid__lt=event.pk
    ).order_by()
    ahead = rows.values("topic")[:_AHEAD_MOST].count()
    if ahead >= _AHEAD_MOST:
        return _("It waits for the dispatcher: %d or more before it.") % _AHEAD_MOST
    text = ngettext(
        "It waits for the dispatcher: %d before it.", "It waits for the dispatcher: %d before it.",
        ahead,
    )  # fmt: skip
    return text % ahead
