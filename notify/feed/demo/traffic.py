"""What happens in the town, on several threads; the demo's list gets what was answered."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TypeVar

from msgplatform.core.data.chunks import chunks
from msgplatform.demo.connection import Connection
from notify.feed.demo.account import FRIEND, VIP, Post, Shown, Town
from notify.feed.demo.client import BATCH, LONG_PAGE, Change, Client, Draft
from notify.feed.demo.scenario import PAGE, STAR, Scenario

_THREADS = 8
_POSTS_AT_ONCE = 40
_MEETINGS = 4  # after so many posts
_SHORT_PAGE = 20
_OF_THE_FAMOUS = 12  # posts in one period, each
_TEXTS = ("Good morning", "新的一天 ☀", "Who lost this cat?", "<b>Sale</b> & 50% \\ off", "مرحبا")
# What two people do who know each other (_ENDED), and two who do not (_MADE).
_ENDED = (
    ("unfriend",),
    ("unfollow",),
    ("unfriend", "follow"),
    ("unfriend", "befriend"),
    ("block",),
    ("block", "befriend", "follow", "unblock"),
    ("block", "unblock", "befriend"),
)
_MADE = (("befriend",), ("follow",), ("befriend", "follow"))
T = TypeVar("T")


class Traffic:
    """`done` counts what was answered, by its name. `late` names changes of relations that a read
    just after them did not show."""

    def __init__(self, base_url: str, token: str, cast: Scenario) -> None:
        self._base_url, self._token, self._cast = base_url, token, cast
        self.town = Town()
        self.done: Counter[str] = Counter()
        self.late: list[str] = []
        self._lock = threading.Lock()
        # Each pair of acquaintances is here once, under the name that comes first.
        self._acquaintances: defaultdict[str, list[str]] = defaultdict(list)

    def settle(self) -> None:
        """Make everybody's first relations. Raises RuntimeError."""
        changes = self._cast.relations()

        def load(client: Client, some: Sequence[Change]) -> None:
            client.change_many(some)
            for change in some:
                self.town.change(*change)

        self._spread(load, list(chunks(changes, BATCH)))
        for _action, uid, other in changes:
            if other not in (PAGE, STAR):
                self._acquaintances[min(uid, other)].append(max(uid, other))
        self._count("relations", len(self.town.friends) + len(self.town.follows))

    def visit(self, readers: Sequence[str]) -> None:
        """Let these readers come and look at their first page."""

        def look(client: Client, reader: str) -> None:
            next(iter(client.pages(reader, _SHORT_PAGE)))

        self._spread(look, readers)

    def live(self, posts: int) -> None:
        """A period with about so many posts of ordinary people, while posts are edited and deleted
        and relations change. Raises RuntimeError."""
        parts = _THREADS - 2
        tasks = [*(self._cast.people[part::parts] for part in range(parts)), [PAGE], [STAR]]

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
            for some in chunks(drafts, _POSTS_AT_ONCE):
                ids = self._post_all(client, some)
                self._revise(client, chance, ids)
                for _ in range(_MEETINGS):
                    self._meet(client, chance, authors)

        self._spread(work, tasks)

    def read_up_to(self, timelines: Mapping[str, Sequence[Shown]]) -> None:
        """Let these readers have read all but the newest few posts of their timelines."""

        def mark(client: Client, reader: str) -> None:
            some = timelines[reader][:5]
            if some:
                client.mark_read(reader, some[-1][0])
                self.town.read[reader] = int(some[-1][0])

        self._spread(mark, list(timelines))

    def timelines(self, readers: Sequence[str]) -> dict[str, list[Shown]]:
        """All pages of these readers' timelines; some by short pages."""
        found: dict[str, list[Shown]] = {}

        def read(client: Client, reader: str) -> None:
            is_short = reader.endswith(("05", "55"))
            found[reader] = client.timeline(reader, _SHORT_PAGE if is_short else LONG_PAGE)

        self._spread(read, readers)
        return found

    def unread(self, readers: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}

        def read(client: Client, reader: str) -> None:
            found[reader] = client.unread(reader)

        self._spread(read, readers)
        return found

    # -- one thread ------------------------------------------------------------------------------
    def _post_all(self, client: Client, drafts: Sequence[Draft]) -> list[str]:
        """Send a few posts one by one and the others as a batch; batches of an even length twice,
        as after a lost answer."""
        single, many = drafts[:4], drafts[4:]
        ids = [client.post(draft) for draft in single]
        if many:
            ids += client.post_many(many, repeat=len(many) % 2 == 0)
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
        strangers = [one for one in self._cast.people if one > uid]
        if not strangers:
            return
        known = self._acquaintances.get(uid)
        is_stranger = not known or chance.random() < 0.2
        other = chance.choice(strangers if is_stranger or not known else known)
        if chance.random() < 0.5:
            uid, other = other, uid
        for action in chance.choice(_MADE if is_stranger else _ENDED):
            done = client.change((action, uid, other))
            if done != self.town.change(action, uid, other):
                raise RuntimeError(f"{uid} could {'' if done else 'not '}{action} {other}")
            self._count(action if done else "refused")
        for reader, author in ((uid, other), (other, uid)):
            for _, by, topic, _ in next(iter(client.pages(reader, LONG_PAGE))):
                if by == author and not self.town.is_shown(reader, author, topic):
                    self.late.append(f"{reader} sees {author}")

    def _count(self, what: str, count: int = 1) -> None:
        with self._lock:
            self.done[what] += count

    def _spread(self, work: Callable[[Client, T], None], tasks: Sequence[T]) -> None:
        """Work on all tasks in several threads, each with a connection of its own."""
        waiting = deque(tasks)

        def run(_number: int) -> None:
            with closing(Connection(self._base_url)) as connection, suppress(IndexError):
                client = Client(connection, self._token)
                while True:
                    task = waiting.popleft()
                    work(client, task)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(run, range(_THREADS)))


class Trickle:
    """A post now and then, after the accounting, and a reader who looks. For one thread."""

    def __init__(self, base_url: str, token: str, cast: Scenario) -> None:
        self._client, self._cast = Client(Connection(base_url), token), cast

    def post(self, number: int) -> None:
        """Raises RuntimeError."""
        author, reader = self._cast.chance.sample(self._cast.people, 2)
        topic = VIP if number % 7 == 0 else FRIEND
        self._client.post((author, topic, f"{_TEXTS[number % len(_TEXTS)]} {number}"))
        next(iter(self._client.pages(reader, _SHORT_PAGE)))
