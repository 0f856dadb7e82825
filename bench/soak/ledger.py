"""The ledger of a run: what callers saw accepted, by the database (hot tables and archive) and by
the books of those who got it.

    published = delivered + failed + waiting

A line is a way of a flow: a subscription, the operator, the CRM, a timeline. It balances when each
accepted message has exactly one of the three states, what is delivered has arrived with its own
content, and nothing else is there. Only messages to a subscriber that is dead may fail, or still
wait. A message comes once, or twice if a program was restarted before. Read it when the programs
have stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from django.db import connection

from bench.soak import calls, stage
from bench.soak.books import Books
from crmsync.models import Lead, Record
from gateway.connections import sms_redis
from gateway.lifecycle import keys as sms_keys
from gateway.models import SgipMt
from gateway.simulator.journal import read_users
from msgplatform.models import Biz
from notify.feed.models import EventQueue, Feed
from notify.models import BizMsg, ColdBizMsg, ColdReceiveMsg, ReceiveMsg

_STATUS = ReceiveMsg.Status
_FAILED = (_STATUS.EXHAUSTED, _STATUS.POISON, _STATUS.SKIPPED)
_DEAD = f"notify, {stage.SUBSCRIBERS[-1]}"
_EXAMPLES = 3
# One statement, so that no floor moves meanwhile.
_UNWRITTEN = """
SELECT DISTINCT f.id FROM feed_user u JOIN feed f ON f.biz_id = u.biz_id AND f.id > u.floor
LEFT JOIN eventqueue e ON e.qid = f.id AND e.status <> %s
LEFT JOIN feed_broadcast b ON b.biz_id = u.biz_id AND b.fri_uid = u.uid AND b.feed_id = f.id
WHERE u.active AND u.uid LIKE %s AND f.id > %s AND e.qid IS NULL AND b.feed_id IS NULL
"""


@dataclass
class Line:
    """One way; `problems` are sentences about messages that are missing or too many."""

    way: str
    published: int
    delivered: int = 0
    failed: int = 0
    waiting: int = 0
    arrived: int = 0
    problems: list[str] = field(default_factory=list)

    def compare(self, expected: Iterable[object], found: Iterable[object], what: str) -> None:
        """Note what is `expected` and not in `found`."""
        if missing := sorted(set(expected) - set(found), key=str):
            some = ", ".join(map(str, missing[:_EXAMPLES]))
            self.problems.append(f"{self.way}: {len(missing)} {what}, such as {some}")

    def compare_ids(self, ids: Mapping[int, str]) -> None:
        """Note calls, by number, that were answered with the id of another."""
        numbers = {id: number for number, id in ids.items()}
        self.compare(ids, numbers.values(), "calls were answered with the id of another")

    def close(self) -> Line:
        total = self.delivered + self.failed + self.waiting
        if total != self.published:
            self.problems.append(
                f"{self.way}: {self.published} published, {total} in the database "
                f"({self.delivered} delivered, {self.failed} failed, {self.waiting} waiting)"
            )
        if self.way != _DEAD and (self.failed or self.waiting):
            self.problems.append(f"{self.way}: {self.failed} failed, {self.waiting} still wait")
        return self

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def lines(
    books: Books, cast: stage.Cast, operator_log: Path, seen: Sequence[str], unwritten: set[int]
) -> list[Line]:
    """All lines. `seen` are the texts of the posts that the watched reader sees, `unwritten` the
    ids of those that `unwritten_posts` has given while the run went on."""
    return [
        *notify(books, cast.systems["notify"].pk, cast.subscriptions),
        sms(books, cast.systems["sms"].pk, operator_log),
        crm(books),
        feed(books, seen, unwritten),
    ]


# -- Notify --------------------------------------------------------------------------------------
def notify(books: Books, biz: int, subscriptions: Mapping[str, int]) -> list[Line]:
    """A line for each subscription."""
    by_id = {int(id): number for number, id in books.accepted["notify"].items()}
    stored: set[int] = set()
    for model in (BizMsg, ColdBizMsg):
        stored |= set(model._default_manager.filter(biz_id=biz).values_list("id", flat=True))
    unsplit = set(
        BizMsg.objects.filter(biz_id=biz, state=BizMsg.State.ACCEPTED).values_list("id", flat=True)
    )
    closed_lines = []
    for name, subscription in subscriptions.items():
        line = line_of(f"notify, {name}", "notify", name, books)
        line.compare(by_id, stored, "accepted messages are not in the database")
        line.compare(stored, by_id, "messages in the database were not accepted")
        statuses: dict[int, int] = {}
        for rows in (ReceiveMsg.objects, ColdReceiveMsg.objects):
            statuses |= dict(
                rows.filter(biz_receive_id=subscription).values_list("msg_id", "status")
            )
        line.compare(by_id.keys() - unsplit, statuses, "messages have no delivery")
        delivered = [id for id, status in statuses.items() if status == _STATUS.DELIVERED]
        line.delivered = len(delivered)
        line.failed = sum(status in _FAILED for status in statuses.values())
        line.waiting = len(statuses) - line.delivered - line.failed + len(unsplit)
        numbers = {by_id.get(id, -1) for id in delivered}
        if name == "dead":
            line.compare(numbers, (), "messages are delivered to a dead subscriber")
        else:
            line.compare(numbers, books.arrived[name], "delivered messages never arrived")
        closed_lines.append(line.close())
    return closed_lines


# -- SMS -----------------------------------------------------------------------------------------
def sms(books: Books, biz: int, operator_log: Path) -> Line:
    """Delivered: the archive has the ending `delivered`, the operator has taken one Submit, and the
    business system's listener has heard of it."""
    by_id = {int(id): number for number, id in books.accepted["sms"].items()}
    line = line_of("sms", "sms", "sms", books)
    endings, wrong_ids = archived(biz, by_id)
    line.compare(endings, by_id, "archived messages were not accepted")
    line.compare(wrong_ids, (), "archived messages have the text of another")
    client: Any = sms_redis()
    names = client.scan_iter(match=sms_keys.MT_PATTERN, count=1000)
    in_redis = {int(name.decode().rpartition(":")[2]) for name in names} - endings.keys()
    line.compare(by_id, endings.keys() | in_redis, "accepted messages are nowhere")
    line.compare(in_redis, by_id, "messages in Redis were not accepted")
    delivered = [id for id, final in endings.items() if final == SgipMt.Final.DELIVERED]
    line.delivered, line.failed = len(delivered), len(endings) - len(delivered)
    line.waiting = len(in_redis & by_id.keys())
    heard = {number for number, state in books.states.items() if state == "delivered"}
    numbers = [by_id[id] for id in delivered if id in by_id]
    line.compare(numbers, heard, "delivered messages were not reported")
    # A repeated Submit has the sequence of the first one.
    taken = {(sequence, user) for sequence, user, result in read_users(operator_log) if not result}
    submits = Counter(user for _sequence, user in taken)
    users = {f"86{calls.recipient(number)}" for number in numbers}
    line.compare(users, submits, "delivered messages were not submitted")
    line.compare((user for user in submits if submits[user] > 1), (), "users got a text twice")
    return line.close()


def archived(biz: int, by_id: Mapping[int, int]) -> tuple[dict[int, str], list[int]]:
    """The ending of each archived message by its id, and the ids of those whose text is not the one
    of their number, which is in `by_id`."""
    endings, wrong_ids = dict[int, str](), list[int]()
    rows = SgipMt.objects.filter(biz_id=biz).values_list("id", "final", "text")
    for id, final, text in rows.iterator():
        endings[id] = final
        if id in by_id and text != calls.sms_text(by_id[id]):
            wrong_ids.append(id)
    return endings, wrong_ids


# -- CRM sync ------------------------------------------------------------------------------------
def crm(books: Books) -> Line:
    """Delivered: the record is confirmed, and the CRM has got it."""
    by_id = {int(id): number for number, id in books.accepted["crmsync"].items()}
    line = line_of("crmsync", "crmsync", "crm", books)
    leads = set(Lead.objects.values_list("id", flat=True))
    line.compare(by_id, leads, "accepted leads are not in the hive")
    line.compare(leads, by_id, "leads in the hive were not accepted")
    states = {int(key): state for key, state in Record.objects.values_list("key", "state")}
    confirmed = [id for id, state in states.items() if state == Record.State.CONFIRMED]
    line.delivered = len(confirmed)
    line.failed = sum(s in (Record.State.DEAD, Record.State.DISMISSED) for s in states.values())
    # A lead without a record has not been read yet.
    line.waiting = len(states) - line.delivered - line.failed + len(leads - states.keys())
    line.compare(
        (by_id.get(id, -1) for id in confirmed), books.arrived["crm"],
        "confirmed leads never arrived",
    )  # fmt: skip
    return line.close()


# -- Feed ----------------------------------------------------------------------------------------
def feed(books: Books, seen: Sequence[str], unwritten: set[int]) -> Line:
    """Delivered: the event is handled, the post was written to all timelines, and is in that of the
    watched reader, read through the API to its end."""
    by_id = {int(id): number for number, id in books.accepted["feed"].items()}
    line = line_of("feed", "feed", "feed", books)
    numbers = timeline_numbers(seen, line)
    line.arrived = len(books.arrived["feed"] | numbers)
    line.compare(unwritten, (), "posts were handled and not written to a timeline")
    stored = set(Feed.objects.values_list("id", flat=True))
    line.compare(by_id, stored, "accepted posts are not in the database")
    line.compare(stored, by_id, "posts in the database were not accepted")
    # Handled events go with their time, so what is not open is handled.
    open_events = dict(
        EventQueue.objects.exclude(status=EventQueue.Status.HANDLED).values_list("qid", "status")
    )
    ours = stored & open_events.keys()
    line.failed = sum(open_events[id] == EventQueue.Status.SET_ASIDE for id in ours)
    line.waiting = len(ours) - line.failed
    line.delivered = len(stored) - len(ours)
    line.compare(
        (by_id.get(id, -1) for id in stored - ours), numbers,
        "posts are not in the reader's timeline",
    )  # fmt: skip
    return line.close()


def timeline_numbers(texts: Sequence[str], line: Line) -> set[int]:
    """The numbers of the posts with these texts; notes those that are there twice, and texts that
    are not as they were posted."""
    counts = Counter(calls.number_of(text) for text in texts)
    doubles = (number for number in counts if counts[number] > 1)
    line.compare(doubles, (), "posts are in the reader's timeline twice")
    wrong = (calls.number_of(text) for text in texts if not calls.is_right_text(text))
    line.compare(wrong, (), "posts of the timeline have the text of another")
    return set(counts)


def unwritten_posts() -> set[int]:
    """Posts that are handled, above the floor of a reader, and not written to that timeline. All
    readers are friends of all authors."""
    with connection.cursor() as cursor:
        # Floors only rise: below the lowest, posts are not looked at.
        cursor.execute("SELECT MIN(floor) FROM feed_user WHERE active AND uid LIKE 'reader-%%'")
        (lowest,) = cursor.fetchone()
        cursor.execute(_UNWRITTEN, [EventQueue.Status.HANDLED, "reader-%", lowest or 0])
        return {row[0] for row in cursor.fetchall()}


def read_timeline(ask: Callable[[str], Mapping[str, Any]]) -> list[str]:
    """The texts of all posts in the watched reader's timeline; `ask` fetches an address."""
    texts: list[str] = []
    address = f"/api/v1/feed/timelines/{calls.reader(calls.WATCHED)}?limit=200"
    while address:
        page = ask(address)
        texts += [post["data"] for post in page["results"]]
        address = page["next"] or ""
    return texts


def old_rows() -> int:
    """Rows of old archives that retention should have deleted."""
    biz, models = Biz.objects.get(name=stage.OLD_BIZ).pk, (ColdBizMsg, SgipMt)
    return sum(model._default_manager.filter(biz_id=biz).count() for model in models)


def line_of(way: str, flow: str, place: str, books: Books) -> Line:
    """A line with what the books of its callers and of its consumer say."""
    accepted = books.accepted[flow]
    line = Line(way, len(accepted), arrived=len(books.arrived[place]))
    line.compare_ids(accepted)
    line.compare(books.arrived[f"wrong-{place}"], (), "messages came with the content of another")
    line.compare(books.unexpected_repeats(place), (), "messages came twice without a restart")
    return line
