"""Accept posts, edit and delete them.

A post is stored with its event and its entry in the author's own timeline, in one transaction, so
that the author sees it at once.
"""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec
from django.db import transaction
from django.utils.translation import gettext as _

from msgplatform.core.data import ids, sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake import idempotency
from msgplatform.core.intake.group_commit import Intake
from msgplatform.core.intake.idempotency import Item
from msgplatform.core.intake.verdicts import Verdict
from notify.feed.models import EventQueue, Feed, FeedBroadcast, FeedIdempotency
from notify.feed.models.events import UpkeepEvent, add_upkeep, insert_events
from notify.feed.models.posts import MAX_DATA, MAX_KIND, MAX_UID, Topic
from notify.feed.monitor import counters
from notify.feed.signals import DISPATCHER

_KIND = re.compile(rf"[A-Za-z0-9_.:-]{{0,{MAX_KIND}}}")
# Visible ASCII without /, which separates parts of an address such as /timelines/<uid>. `check_uid`
# refuses "." and "..", which clients resolve in an address.
UID = rf"[!-.0-~]{{1,{MAX_UID}}}"
_UID = re.compile(UID)


class Post(msgspec.Struct, frozen=True):
    """A post of a user; `src_type` is the kind: update, note, greeting …"""

    biz: int
    uid: str
    data: str
    topic: str = Topic.FRIEND
    app_id: str = ""
    src_type: str = ""
    idempotency_key: str | None = None


def check_uid(uid: str, field: str = "uid") -> None:
    """Raises InvalidInput."""
    if not _UID.fullmatch(uid) or uid in (".", ".."):
        raise InvalidInput(
            _("Use 1 to %d visible ASCII characters without spaces or /.") % MAX_UID, field
        )


def check_data(data: str) -> None:
    """Raises InvalidInput."""
    if not data.strip():
        raise InvalidInput(_("Write something."), "data")
    if len(data) > MAX_DATA:
        raise InvalidInput(_("Use at most %d characters.") % MAX_DATA, "data")
    if "\x00" in data:
        raise InvalidInput(_("Leave out the character NUL."), "data")


def check_kind(text: str, field: str) -> None:
    """An application or a kind of post. Raises InvalidInput."""
    if not _KIND.fullmatch(text):
        raise InvalidInput(_("Use at most %d letters, digits and _ . : -") % MAX_KIND, field)


def check(post: Post) -> None:
    """Raises InvalidInput, naming the field and what to change."""
    check_uid(post.uid)
    check_data(post.data)
    if post.topic not in Topic.values:
        raise InvalidInput(_("Use one of: %s.") % ", ".join(Topic.values), "topic")
    for name in ("app_id", "src_type"):
        check_kind(getattr(post, name), name)
    if post.idempotency_key is not None:
        idempotency.check_key(post.idempotency_key)


def edit(biz: int, post_id: int, data: str) -> bool:
    """Change a post's text; returns True if the post exists. Readers see the change at once,
    because timelines hold only the post's id. Raises InvalidInput.
    """
    check_data(data)
    rows = Feed.objects.filter(pk=post_id, biz_id=biz, delete_date=None)
    return bool(transactions.retrying(lambda: rows.update(data=data, update_date=sql.now())))


def delete(biz: int, post_id: int) -> bool:
    """Delete a post; returns True if the post exists. Readers stop seeing the post at once; an
    event removes its entries later. Deleting a post again changes nothing.
    """
    # Ids are reserved outside the transaction, because reserving is a transaction itself.
    block = ids.reserve(1)

    @transaction.atomic
    def mark_deleted() -> bool:
        rows = Feed.objects.filter(pk=post_id, biz_id=biz)
        author = rows.values_list("uid", flat=True).first()
        if author is None:
            return False
        now = sql.now()
        if rows.filter(delete_date=None).update(delete_date=now):
            deletion = UpkeepEvent(biz, author, EventQueue.Kind.DELETE, {"feed": str(post_id)})
            add_upkeep([deletion], block, now)
        return True

    return transactions.retrying(mark_deleted)


def _item(post: Post) -> Item[Post]:
    """Raises InvalidInput."""
    check(post)
    parts = post.uid, post.topic, post.app_id, post.src_type, post.data
    return idempotency.item(
        post, post.biz, post.idempotency_key, *(part.encode() for part in parts)
    )


def _store(items: Sequence[Item[Post]]) -> list[Verdict]:
    verdicts = idempotency.store(items, FeedIdempotency, _insert)
    # The signal is sent after the commit. A lost signal costs at most a poll.
    DISPATCHER.send()
    return verdicts


def _insert(items: Sequence[Item[Post]], now: object) -> None:
    posts = [(item.id, item.body) for item in items]
    sql.insert_or_keep(
        Feed._meta.db_table,
        ("id", "biz_id", "uid", "topic", "app_id", "src_type", "data", "create_date"),
        [(i, p.biz, p.uid, p.topic, p.app_id, p.src_type, p.data, now) for i, p in posts],
    )
    sql.insert_or_keep(
        FeedBroadcast._meta.db_table,
        ("biz_id", "fri_uid", "feed_id", "create_date", "app_id", "src_type"),
        [(p.biz, p.uid, i, now, p.app_id, p.src_type) for i, p in posts],
    )
    # The event has the post's id. Ids rise with time, so the oldest event has the lowest id.
    waiting, kind = int(EventQueue.Status.WAITING), str(EventQueue.Kind.POST)
    insert_events([(i, p.biz, p.topic, kind, waiting, "", p.uid, now, "", "") for i, p in posts])
    # Counters come last, because other processes wait for these rows until the commit. If the
    # answer to the COMMIT is lost, the posts are stored once, and counted twice.
    counts = Counter(counters.key(p.biz, counters.ACCEPTED, p.topic) for _, p in posts)
    counters.add(counts, sql.now())


_INTAKE = Intake(_item, _store)
add, add_many, add_later = _INTAKE.add, _INTAKE.add_many, _INTAKE.add_later
