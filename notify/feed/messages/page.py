"""Everything about one post or event: from its author to the timelines of its recipients."""

import json
from collections.abc import Iterator

from django.utils.translation import gettext as _, ngettext

from msgplatform.core.data import chunks
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.page import Call, Page, PageLink, Recipient, TimelineEntry, Value
from msgplatform.core.intake.idempotency import key_of
from msgplatform.messages.filters import number
from msgplatform.models import Biz
from notify.feed.messages import states
from notify.feed.models import EventQueue, Feed, FeedBroadcast, FeedIdempotency, FeedUser, Friend
from notify.feed.models.posts import Topic
from notify.feed.models.users import RELATIONS_OF_TOPIC

# Recipients whose timelines the page counts. The bound keeps the page fast.
MAX_COUNTED = 1000
MAX_AHEAD = 1000  # bound of counting the events before an event
_CHUNK = 500
_STATUS = EventQueue.Status


def page(id: str, after: str = "") -> Page | None:
    """The page of a post and its event, which have the same id, or of an event of upkeep."""
    try:
        pk = number(id)
    except InvalidInput:
        return None
    post = Feed.objects.filter(pk=pk).first()
    event = EventQueue.objects.filter(pk=pk).first()
    if post is None:
        return _event_page(event) if event is not None else None
    author = FeedUser.objects.filter(biz_id=post.biz_id, uid=post.uid).first()
    recipient_count = author.recipient_count(post.topic) if author else 0
    count_entry = _count_entry(post, author)
    cards = [_post_card(post, event, recipient_count, count_entry)] if recipient_count else []
    system = Biz.objects.filter(id=post.biz_id).first()
    author_link: Value = post.uid
    if system:
        address = states.user_address(system.name, post.uid)
        author_link = PageLink(post.uid, address, "feed.view_feeduser")
    counts: dict[str, Value] = {}
    if author:
        counts[_("friends")] = str(author.friends)
        if post.topic == Topic.VIP:
            counts[_("followers")] = str(author.followers)
        counts[_("posts are")] = str(FeedUser.Merging(author.merging).label)
    columns = {"uid": post.uid, "data": post.data, "topic": post.topic}
    kinds = {"app_id": post.app_id, "src_type": post.src_type}
    columns |= {name: value for name, value in kinds.items() if value}
    call = Call.of_intake(
        _("Post this once more with curl"), "/api/v1/feed/posts",
        json.dumps(columns, ensure_ascii=False),
        _("With a key of the business system instead of YOUR_API_KEY; it becomes another post."),
    )  # fmt: skip
    return Page(
        id=str(post.pk),
        title=states.title(post, event),
        masked_title=post.uid,
        facts={
            _("Business system"): PageLink.to(system) if system else str(post.biz_id),
            _("Author"): author_link,
            _("Topic"): str(Topic(post.topic).label),
            _("Application"): post.app_id or "–",
            _("Kind"): post.src_type or "–",
            _("State"): states.state(post, event),
            _("Recipients"): str(recipient_count),
            _("Idempotency key"): key_of(FeedIdempotency, post.pk) or "–",
        },
        body=post.data,
        timeline=[*_timeline(post, event), count_entry],
        recipients=cards,
        recipients_title=_("Timelines"),
        no_recipient_reasons=(
            [] if recipient_count else [_("The author has no friends or followers who get it.")]
        ),
        notices=[_("The post was deleted, and no reader sees it.")] if post.delete_date else [],
        fact_cards={_("Its recipients now"): counts} if author else {},
        call=call if post.delete_date is None else None,
    )


def _event_page(event: EventQueue) -> Page:
    system = Biz.objects.filter(id=event.biz_id).first()
    request_entry = TimelineEntry(event.create_date, _("Asked for"), "accepted")
    return Page(
        id=str(event.pk),
        title=states.title(None, event),
        facts={
            _("Business system"): PageLink.to(system) if system else str(event.biz_id),
            _("User"): event.uid,
            _("Topic"): str(EventQueue.Topic(event.topic).label),
            _("State"): states.state(None, event),
        },
        body=json.dumps(json.loads(event.data), ensure_ascii=False) if event.data else "",
        timeline=[request_entry, _status_entry(event)],
        recipients=[_event_card(event, str(EventQueue.Kind(event.kind).label), {})],
        recipients_title=_("Timelines"),
    )


def _timeline(post: Feed, event: EventQueue | None) -> Iterator[TimelineEntry]:
    yield TimelineEntry(post.create_date, _("Posted"), "accepted")
    entries: list[TimelineEntry] = []
    if event is None:
        # The cleaner deletes events some time after they were handled.
        entries.append(TimelineEntry(None, _("Handled"), "done", _("the event is no longer kept")))
    elif event.status == _STATUS.HANDLED:
        entries.append(_status_entry(event))
    if post.update_date:
        entries.append(TimelineEntry(post.update_date, _("Edited"), "accepted"))
    if post.delete_date:
        entries.append(TimelineEntry(post.delete_date, _("Deleted"), "done"))
    yield from sorted(entries, key=lambda entry: entry.at or post.create_date)
    if event is not None and event.status != _STATUS.HANDLED:
        yield _status_entry(event)


def _status_entry(event: EventQueue) -> TimelineEntry:
    """The state of an event. The entry has no time while the event is not handled."""
    if event.status == _STATUS.HANDLED:
        if event.reason:
            return TimelineEntry(event.handle_date, _("Dismissed"), "failed", event.reason)
        return TimelineEntry(event.handle_date, _("Handled"), "delivered")
    detail = _("done up to %s") % event.position if event.position else ""
    if event.status == _STATUS.SET_ASIDE:
        why = " · ".join(part for part in (event.reason, detail) if part)
        title = _("Set aside until somebody replays or dismisses it")
        return TimelineEntry(None, title, "failed", why)
    if event.status == _STATUS.IN_SLICES:
        return TimelineEntry(None, _("Being written in slices"), "queued", detail)
    return TimelineEntry(None, _("Waiting for the dispatcher"), "waiting", detail)


def _count_entry(post: Feed, author: FeedUser | None) -> TimelineEntry:
    """The number of timelines that have the post, among the first MAX_COUNTED recipients."""
    relations = RELATIONS_OF_TOPIC[post.topic]
    rows = Friend.objects.filter(biz_id=post.biz_id, uid=post.uid, relation__in=relations)
    rows = rows.order_by("relation", "fri_uid")
    # A friend who is a follower too has two rows.
    uids = list(dict.fromkeys(rows.values_list("fri_uid", flat=True)[: 2 * MAX_COUNTED + 2]))
    count = 0
    for chunk_uids in chunks(uids[:MAX_COUNTED], _CHUNK):
        count += FeedBroadcast.objects.filter(
            biz_id=post.biz_id, fri_uid__in=chunk_uids, feed_id=post.pk
        ).count()
    if not count and author is not None and author.merging == FeedUser.Merging.MERGED:
        return TimelineEntry(
            None, _("Merged at read"), "linked",
            _("the author has very many recipients: it is not written into their timelines"),
        )  # fmt: skip
    detail = ""
    if len(uids) > MAX_COUNTED:
        detail = _("%d timelines of recipients were looked at") % MAX_COUNTED
    title = ngettext("Stands in %d timeline", "Stands in %d timelines", count) % count
    return TimelineEntry(None, title, "linked", detail)


def _post_card(
    post: Feed, event: EventQueue | None, count: int, count_entry: TimelineEntry
) -> Recipient:
    """One card for the timelines of `count` recipients, which are written together. `count_entry`
    has the number of timelines with the post."""
    group = _("friends") if post.topic == Topic.FRIEND else _("friends and followers")
    text = ngettext("%(count)d timeline of %(who)s", "%(count)d timelines of %(who)s", count)
    name = text % {"count": count, "who": group}
    facts: dict[str, Value] = {_("Now"): count_entry.title}
    if count_entry.detail:
        facts[_("Why")] = count_entry.detail
    if event is None:
        # The cleaner deletes events some time after they were handled.
        return Recipient(
            id=str(post.pk), name=name, state=str(_STATUS.HANDLED.label), tone="good", facts=facts,
            notes=[_("Its event was handled, and is no longer kept.")],
        )  # fmt: skip
    return _event_card(event, name, facts)


def _event_card(event: EventQueue, name: str, facts: dict[str, Value]) -> Recipient:
    status = _STATUS(event.status)
    facts[_("Event")] = PageLink.to(event)
    if event.position:
        facts[_("Done up to")] = event.position
    effect = _("It waits for the dispatcher again, and goes on where it failed. No timeline gets a "
               "post twice.")  # fmt: skip
    return Recipient(
        id=str(event.pk),
        name=name,
        state=str(status.label),
        tone=states.TONES[status],
        since=event.handle_date or event.create_date,
        why=_why(event, status),
        facts=facts,
        notes=[_("Tries of an event are not kept, only why the last one failed.")],
        resend_effect=effect if status == _STATUS.SET_ASIDE else "",
    )


def _why(event: EventQueue, status: EventQueue.Status) -> str:
    if status == _STATUS.SET_ASIDE:
        return _("Set aside until somebody replays or dismisses it: %s") % (event.reason or "–")
    if status == _STATUS.IN_SLICES:
        return _("It is written in slices, because it has very many recipients.")
    if status == _STATUS.HANDLED:
        return _("Somebody dismissed it: %s") % event.reason if event.reason else ""
    rows = EventQueue.objects.filter(
        topic=event.topic, status=_STATUS.WAITING, qid__lt=event.pk
    ).order_by("qid")
    systems = list(rows.values_list("biz_id", flat=True)[:MAX_AHEAD])
    # A person who is limited to business systems must not learn the backlog of other systems.
    ahead = systems.count(event.biz_id)
    if len(systems) >= MAX_AHEAD:
        text = _("It waits for the dispatcher: of the %(most)d oldest events before it, %(count)d "
                 "are of its business system.")  # fmt: skip
        return text % {"count": ahead, "most": MAX_AHEAD}
    text = ngettext(
        "It waits for the dispatcher: %d event of its business system goes first.",
        "It waits for the dispatcher: %d events of its business system go first.",
        ahead,
    )
    return text % ahead
