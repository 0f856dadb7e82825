"""The states of posts and events, in words and colours, and their lines in lists."""

from collections.abc import Sequence

from django.urls import reverse
from django.utils.http import urlencode
from django.utils.text import Truncator
from django.utils.translation import gettext as _, pgettext

from msgplatform.core.data import sql
from msgplatform.core.flows.page import Hit, Tone
from msgplatform.models import Biz
from notify.feed.models import EventQueue, Feed, FeedUser

_STATUS = EventQueue.Status
TONES: dict[int, Tone] = {_STATUS.WAITING: "plain", _STATUS.HANDLED: "good",
                          _STATUS.IN_SLICES: "warn", _STATUS.SET_ASIDE: "bad"}  # fmt: skip
MAX_TITLE = 60  # characters of a post
_SYSTEMS = 500  # of which users are looked up


def lines(ids: Sequence[int]) -> dict[int, Hit]:
    """Id → line of the post or event, with three queries. A post and its event have the same id and
    one line."""
    posts = {post.pk: post for post in Feed.objects.filter(id__in=ids)}
    events = {event.pk: event for event in EventQueue.objects.filter(qid__in=ids)}
    rows: list[Feed | EventQueue] = [*posts.values(), *events.values()]
    names = sql.names_by_id(Biz.objects.all(), (row.biz_id for row in rows))
    by_id: dict[int, Hit] = {}
    for pk in ids:
        post, event = posts.get(pk), events.get(pk)
        row = post or event
        if row is not None:
            is_deleted = post is not None and post.delete_date is not None
            status = event.status if event else _STATUS.HANDLED
            parts = [str(EventQueue.Topic(row.topic).label)]
            if isinstance(row, Feed):
                parts += [row.app_id, row.src_type]
                if row.update_date and not row.delete_date:
                    parts.append(pgettext("state", "edited"))
            by_id[pk] = Hit(
                id=str(pk),
                title=title(post, event),
                masked_title=post.uid if post else "",
                state=state(post, event),
                at=row.create_date,
                biz=names.get(row.biz_id, str(row.biz_id)),
                tone="plain" if is_deleted and status == _STATUS.HANDLED else TONES[status],
                reason=event.reason if event else "",
                details=" · ".join(filter(None, parts)),
            )
    return by_id


def timelines(uid: str) -> list[Hit]:
    """A line for each system's user with this id, with a link to the user's timeline. Users who
    only read have no other line."""
    systems = {biz.pk: biz for biz in Biz.objects.order_by("name")[:_SYSTEMS]}
    rows = FeedUser.objects.filter(biz_id__in=list(systems), uid=uid)
    return [
        Hit(
            id=f"user-{row.biz_id}-{row.uid}",
            title=_("user %(uid)s of %(system)s → timeline")
            % {"uid": row.uid, "system": systems[row.biz_id]},
            state=pgettext("reader", "active") if row.active else _("inactive"),
            at=row.visit_date,
            biz=str(systems[row.biz_id]),
            link=user_address(systems[row.biz_id].name, row.uid),
        )
        for row in rows
    ]


def user_address(system: str, uid: str) -> str:
    """The address of a user's page."""
    return f"{reverse('admin:feed_users')}?{urlencode({'system': system, 'uid': uid})}"


def title(post: Feed | None, event: EventQueue | None) -> str:
    if post is not None:
        return f"{post.uid}: {Truncator(post.data).chars(MAX_TITLE)}"
    if event is not None:
        return f"{event.uid}: {EventQueue.Kind(event.kind).label}"
    return ""


def state(post: Feed | None, event: EventQueue | None) -> str:
    """The state in words. An event that does not exist any longer was handled."""
    label = str(_STATUS(event.status if event else _STATUS.HANDLED).label)
    is_deleted = post is not None and post.delete_date is not None
    return _("%s (deleted)") % label if is_deleted else label
