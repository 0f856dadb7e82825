"""Events, the dispatcher's work, and the scheduler's decisions.

    waiting ──▶ handled                   all of it in one transaction
    waiting ──▶ in slices ──▶ handled     too much for one: a transaction for each slice
    waiting, in slices ──▶ set aside      it failed alone
    set aside ──▶ waiting                 somebody replays it; `position` stays, so that an event
                                          in slices goes on where it failed
    set aside ──▶ handled                 somebody dismisses it; `reason` stays
    handled ──▶ deleted                   by the cleaner, after FEED_KEEP_EVENT_HOURS

Entries are written in the transaction that changes the status, so each event has its effect once.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from django.db import models
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from msgplatform.core.data import ids, sql
from msgplatform.core.fields import ExactCharField
from msgplatform.models import Biz
from notify.feed.models.posts import MAX_DATA, MAX_UID


class EventQueue(models.Model):
    """The event of a post has the post's id as its qid; `data` is JSON with the other values of its
    kind."""

    class Topic(models.TextChoices):
        """The receiver that works on the event."""

        FRIEND = "friend", _("friend")
        VIP = "vip", _("vip")
        UPKEEP = "upkeep", _("upkeep")  # changes timelines after relations or posts changed

    class Kind(models.TextChoices):
        POST = "post", _("post")  # reaches its recipients; topic friend or vip
        DELETE = "delete", _("delete a post")  # data: feed
        BACKFILL = "backfill", _("backfill")  # uid: the reader whose new relations are written
        UNFOLLOW = "unfollow", _("end of a relation")  # uid: the author; data: reader
        MERGE = "merge", _("merge an author")  # uid: the author who is merged at read from now on

    class Status(models.IntegerChoices):
        WAITING = 0, _("waiting")
        HANDLED = 1, pgettext_lazy("state", "handled")
        IN_SLICES = 2, _("in slices")  # too many recipients for one transaction
        SET_ASIDE = 3, _("set aside")  # failed, for `reason`

    OPEN = (Status.WAITING, Status.IN_SLICES)  # the statuses of events that are to be handled

    qid = models.BigIntegerField(_("event"), primary_key=True)
    biz = models.ForeignKey(
        Biz, models.DO_NOTHING, db_constraint=False, db_index=False, verbose_name=_("system")
    )
    topic = ExactCharField(_("topic"), max_length=8, choices=Topic)
    kind = ExactCharField(_("kind"), max_length=8, choices=Kind, default=Kind.POST)
    status = models.PositiveSmallIntegerField(_("status"), choices=Status, default=Status.WAITING)
    data = models.CharField(_("data"), max_length=MAX_DATA, blank=True, default="")
    uid = ExactCharField(_("user"), max_length=MAX_UID)
    create_date = models.DateTimeField(_("created"))
    # When the event was handled, or set aside.
    handle_date = models.DateTimeField(_("handled"), null=True, blank=True)
    # The relation and reader up to which an event in slices is done, such as "friend:1001".
    position = ExactCharField(_("done up to"), max_length=80, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=500, blank=True, default="")

    class Meta:
        db_table = "eventqueue"
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ["-qid"]
        indexes = [models.Index(fields=["topic", "status", "qid"], name="eventqueue_to_handle")]

    def __str__(self) -> str:
        return str(self.pk)


EVENT_COLUMNS = (
    "qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date", "position", "reason",
)  # fmt: skip


def insert_events(rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows of EVENT_COLUMNS, in the transaction that changes posts or relations. Existing
    events do not change."""
    sql.insert_or_keep(EventQueue._meta.db_table, EVENT_COLUMNS, rows)


class UpkeepEvent(msgspec.Struct, frozen=True):
    """An event of upkeep, after relations or posts changed.

    `uid` is the user whose posts or timeline change; `data` depends on the kind.
    """

    biz: int
    uid: str
    kind: EventQueue.Kind
    data: Mapping[str, str] = msgspec.field(default_factory=dict)


def add_upkeep(events: Sequence[UpkeepEvent], block: ids.Block, now: datetime) -> None:
    """Store the events in the caller's transaction, with ids of `block`, which no other rows may
    use."""
    numbers = block.ids([ids.bucket(event.biz, event.uid) for event in events])
    rows = [
        (qid, e.biz, "upkeep", str(e.kind), 0, json.dumps(e.data) if e.data else "", e.uid, now,
         "", "")
        for qid, e in zip(numbers, events, strict=True)
    ]  # fmt: skip
    insert_events(rows)


class FeedPace(models.Model):
    """A decision of the scheduler; a row every ten seconds while there is work.

    `load` is the largest ratio of what was measured to its target; above 1 dispatchers give way.
    `latency` and `baseline` are milliseconds.
    """

    class Cause(models.TextChoices):
        """The figure with the largest load."""

        NONE = "", _("nobody else works")
        STATEMENTS = "stmt", _("statements of others")
        LATENCY = "latency", _("the database's latency")
        CPU = "cpu", _("this machine's processors")

    at = models.DateTimeField(_("time"), primary_key=True)
    share = models.FloatField(_("share"))  # part of the time that a dispatcher works, 0 to 1
    events = models.PositiveSmallIntegerField(_("events in a batch"))
    load = models.FloatField(_("load"))
    cause = models.CharField(_("because of"), max_length=8, choices=Cause, blank=True)
    latency = models.FloatField(_("latency, ms"))
    baseline = models.FloatField(_("latency at rest, ms"))
    statements = models.FloatField(_("statements of others"))  # running at once, on average
    cpu = models.FloatField(_("processors at work"))  # 0 to 1
    backlog = models.IntegerField(_("events waiting"))  # counted up to a bound
    oldest = models.FloatField(_("oldest event, s"))

    class Meta:
        db_table = "feed_pace"
        verbose_name = _("scheduler's decision")
        verbose_name_plural = _("scheduler's decisions")
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.share:.2f}"
