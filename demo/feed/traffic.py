"""The traffic of the town, on several threads; the demo's own list gets what was answered."""

import random
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

from demo.account import Records
from demo.connection import Connection
from demo.feed.town import FRIEND, PAGE, STAR, VIP, Population, Post, Town
from demo.script import Script, spread
from msgplatform.core.data import chunks

_FEED = "/api/v1/feed"
CHANGES = 1000  # of relations, in one request
LONG_PAGE = 200
_THREADS = 8
_POSTS_AT_ONCE = 40
_MEETINGS = 4  # after so many posts
_SHORT_PAGE = 20
_OF_THE_FAMOUS = 12  # posts in one period, each
_TEXTS = ("Good morning", "新的一天 ☀", "Who lost this cat?", "<b>Sale</b> & 50% \\ off", "مرحبا")
# Actions of two people who know each other, and of two who do not.
_OF_ACQUAINTANCES = (
    ("unfriend",),
    ("unfollow",),
    ("unfriend", "follow"),
    ("unfriend", "befriend"),
    ("block",),
    ("block", "befriend", "follow", "unblock"),
    ("block", "unblock", "befriend"),
)
_OF_STRANGERS = (("befriend",), ("follow",), ("befriend", "follow"))
T = TypeVar("T")


Change = tuple[str, str, str]  # action, uid, other
Draft = tuple[str, str, str]  # author, topic, data


class Client(Script):
    """The business system's calls of Feed."""

    def change_many(self, changes: Sequence[Change]) -> None:
        """At most CHANGES, none of which a block forbids."""
        self.send_many(f"{_FEED}/relations/batch", "changes", list(map(_change, changes)))

    def change(self, change: Change) -> bool:
        """Make one change; False when a block forbids it."""
        answer = self.request("POST", f"{_FEED}/relations", _change(change))
        return answer.require(200, 202, 409).status != 409

    def post_many(self, drafts: Sequence[Draft], is_repeated: bool = False) -> list[str]:
        """The ids of these posts."""
        posts = [{**_post(draft), "idempotency_key": uuid.uuid4().hex} for draft in drafts]
        verdicts = self.send_many(f"{_FEED}/posts/batch", "posts", posts, is_repeated)
        return [str(verdict["id"]) for verdict in verdicts]

    def post(self, draft: Draft) -> str:
        return str(self.send(f"{_FEED}/posts", _post(draft), key=uuid.uuid4().hex)["id"])

    def edit(self, id: str, data: str) -> None:
        self.call("PATCH", f"{_FEED}/posts/{id}", {"data": data})

    def delete(self, id: str) -> None:
        self.call("DELETE", f"{_FEED}/posts/{id}")

    def timeline(self, uid: str, limit: int = LONG_PAGE) -> Records:
        """All pages of it."""
        return [post for page in self.timeline_pages(uid, limit) for post in page]

    def timeline_pages(
        self, uid: str, limit: int
    ) -> Iterator[list[tuple[str, tuple[str, str, str]]]]:
        """Posts by their id: author, topic, data."""
        for page in self.pages(f"{_FEED}/timelines/{quote(uid)}?limit={limit}"):
            yield [(post["id"], (post["uid"], post["topic"], post["data"])) for post in page]

    def unread(self, uid: str) -> int:
        return int(self.call("GET", f"{_FEED}/timelines/{quote(uid)}/unread")["count"])

    def mark_read(self, uid: str, up_to: str) -> None:
        self.call("POST", f"{_FEED}/timelines/{quote(uid)}/read", {"up_to": up_to})


def _change(change: Change) -> dict[str, str]:
    return dict(zip(("action", "uid", "other"), change, strict=True))


def _post(draft: Draft) -> dict[str, str]:
    return dict(zip(("uid", "topic", "data"), draft, strict=True))


class Traffic:
    """`counts` are the answered requests by name; `late` names changes of relations that the next
    read did not show."""

    def __init__(self, base_url: str, token: str, population: Population) -> None:
        self._base_url, self._token, self._population = base_url, token, population
        self.town = Town()
        self.counts: Counter[str] = Counter()
        self.late: list[str] = []
        self._lock = threading.Lock()
        # Each pair of acquaintances is here once, under the name that comes first.
        self._acquaintances: defaultdict[str, list[str]] = defaultdict(list)

    def settle(self) -> None:
        """Make everybody's first relations. Raises RuntimeError."""
        changes = self._population.relations()

        def load(client: Client, share: Sequence[Change]) -> None:
            client.change_many(share)
            for change in share:
                self.town.change(*change)

        self._spread(load, list(chunks(changes, CHANGES)))
        for _action, uid, other in changes:
            if other not in (PAGE, STAR):
                self._acquaintances[min(uid, other)].append(max(uid, other))
        self._count("relations", len(self.town.friends) + len(self.town.follows))

    def visit(self, readers: Sequence[str]) -> None:
        """Let these readers come and look at their first page."""

        def look(client: Client, reader: str) -> None:
            next(client.timeline_pages(reader, _SHORT_PAGE))

        self._spread(look, readers)

    def live(self, posts: int) -> None:
        """A period with about so many posts of ordinary people, while posts are edited and deleted
        and relations change. Raises RuntimeError."""
        parts = _THREADS - 2
        tasks = [*(self._population.people[part::parts] for part in range(parts)), [PAGE], [STAR]]

        def work(client: Client, authors: Sequence[str]) -> None:
            chance = random.Random(f"{authors[0]} {len(self.town.posts)}")  # noqa: S311
            if authors[0] in (PAGE, STAR):
                uid = authors[0]
                topics = [FRIEND if n % 4 == 3 else VIP for n in range(_OF_THE_FAMOUS)]
                drafts = [(uid, t, f"{uid} tells everybody: {n}") for n, t in enumerate(topics)]
                self._post_all(client, drafts)
                return
            drafts = []
            for _ in range(posts // parts + 1):
                uid = chance.choice(authors)
                topic = VIP if chance.random() < 0.15 else FRIEND
                text = f"{chance.choice(_TEXTS)} {chance.randrange(10_000)}"
                drafts.append((uid, topic, text))
            for share in chunks(drafts, _POSTS_AT_ONCE):
                ids = self._post_all(client, share)
                self._revise(client, chance, ids)
                for _ in range(_MEETINGS):
                    self._meet(client, chance, authors)

        self._spread(work, tasks)

    def read_up_to(self, timelines: Mapping[str, Records]) -> None:
        """Let these readers have read all but the newest few posts of their timelines."""

        def mark(client: Client, reader: str) -> None:
            if newest := timelines[reader][:5]:
                client.mark_read(reader, newest[-1][0])
                self.town.read[reader] = int(newest[-1][0])

        self._spread(mark, list(timelines))

    def timelines(self, readers: Sequence[str]) -> dict[str, Records]:
        """All pages of these readers' timelines; some by short pages."""
        timelines: dict[str, Records] = {}

        def read(client: Client, reader: str) -> None:
            is_short = reader.endswith(("05", "55"))
            timelines[reader] = client.timeline(reader, _SHORT_PAGE if is_short else LONG_PAGE)

        self._spread(read, readers)
        return timelines

    def unread(self, readers: Sequence[str]) -> dict[str, int]:
        counts: dict[str, int] = {}

        def read(client: Client, reader: str) -> None:
            counts[reader] = client.unread(reader)

        self._spread(read, readers)
        return counts

    # -- one thread ------------------------------------------------------------------------------
    def _post_all(self, client: Client, drafts: Sequence[Draft]) -> list[str]:
        """Send a few posts one by one and the others as a batch; batches of an even length twice,
        as after a lost answer."""
        single, many = drafts[:4], drafts[4:]
        ids = [client.post(draft) for draft in single]
        if many:
            ids += client.post_many(many, is_repeated=len(many) % 2 == 0)
        for id, draft in zip(ids, drafts, strict=True):
            self.town.add(Post(id, *draft))
        self._count("posts", len(ids))
        return ids

    def _revise(self, client: Client, chance: random.Random, ids: Sequence[str]) -> None:
        for id in chance.sample(ids, len(ids) // 8):
            data = f"{self.town.posts[id].data} (edited)"
            client.edit(id, data)
            self.town.posts[id].data = data
            self._count("edited")
        for id in chance.sample(ids, len(ids) // 12):
            client.delete(id)
            self.town.posts[id].deleted = True
            self._count("deleted")

    def _meet(self, client: Client, chance: random.Random, authors: Sequence[str]) -> None:
        """Change the relations of two people; a read must show it at once. A pair always belongs to
        the same thread, so that nothing else changes it meanwhile."""
        uid = chance.choice(authors)
        strangers = [other for other in self._population.people if other > uid]
        if not strangers:
            return
        acquaintances = self._acquaintances.get(uid)
        is_stranger = not acquaintances or chance.random() < 0.2
        other = chance.choice(strangers if is_stranger or not acquaintances else acquaintances)
        if chance.random() < 0.5:
            uid, other = other, uid
        for action in chance.choice(_OF_STRANGERS if is_stranger else _OF_ACQUAINTANCES):
            is_done = client.change((action, uid, other))
            if is_done != self.town.change(action, uid, other):
                raise RuntimeError(f"{uid} could {'' if is_done else 'not '}{action} {other}")
            self._count(action if is_done else "refused")
        for reader, author in ((uid, other), (other, uid)):
            for _id, (by, topic, _data) in next(client.timeline_pages(reader, LONG_PAGE)):
                if by == author and not self.town.is_shown(reader, author, topic):
                    self.late.append(f"{reader} sees {author}")

    def _count(self, what: str, count: int = 1) -> None:
        with self._lock:
            self.counts[what] += count

    def _spread(self, work: Callable[[Client, T], None], tasks: Sequence[T]) -> None:
        """Work on all tasks in several threads, each with a connection of its own."""
        spread(self._base_url, lambda c, task: work(Client(c, self._token), task), tasks, _THREADS)


def trickle(base_url: str, token: str, population: Population) -> Callable[[int], None]:
    """A post now and then, and a reader who looks. For one thread."""
    client = Client(Connection(base_url), token)

    def post(number: int) -> None:
        author, reader = population.chance.sample(population.people, 2)
        topic = VIP if number % 7 == 0 else FRIEND
        client.post((author, topic, f"{_TEXTS[number % len(_TEXTS)]} {number}"))
        next(client.timeline_pages(reader, _SHORT_PAGE))

    return post
