"""A town under fire: posts and relations that change over REST, and a list of what was answered."""

import random
import threading
from contextlib import closing

from demo.account import Differences, compare
from demo.connection import Connection
from demo.feed.town import FRIEND, VIP, Post, Town
from demo.feed.traffic import LONG_PAGE, Client
from tests.cluster import Cluster

SET_UP = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
biz = Biz.objects.create(name="town")
print(json.dumps(keys.create(biz, "test", ["feed:write", "feed:read"])[1]))
"""
LEFT = """
import json
from collections import Counter
from notify.feed.models import EventQueue
rows = EventQueue.objects.exclude(status=EventQueue.Status.HANDLED)
print(json.dumps(Counter(f"{topic} {status}" for topic, status in
                         rows.values_list("topic", "status"))))
"""
# What must be written, since a read does not look for it elsewhere, and is not.
UNWRITTEN = """
import json
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute('''
        SELECT COUNT(*), SUM(CASE WHEN b.feed_id IS NULL THEN 1 ELSE 0 END)
        FROM friend r
        JOIN feed_user u ON u.biz_id = r.biz_id AND u.uid = r.fri_uid
        JOIN feed f ON f.biz_id = r.biz_id AND f.uid = r.uid
        LEFT JOIN feed_broadcast b
          ON b.biz_id = r.biz_id AND b.fri_uid = r.fri_uid AND b.feed_id = f.id
        WHERE r.delivery = 2 AND u.active AND f.id > u.floor AND f.delete_date IS NULL
          AND (r.relation = 'friend' OR r.relation = 'follow' AND f.topic = 'vip')''')
    print(json.dumps([int(count or 0) for count in cursor.fetchone()]))
"""
# Its posts go in slices. The other one's recipients go above the threshold and below it.
STAR, COMET = "star", "comet"
PEOPLE = [f"citizen-{number:03d}" for number in range(160)]
# Of the platform: small enough for slices, merged authors and cleaning to happen.
SETTINGS = {
    "FEED_FANOUT_BATCH": "20",
    "FEED_READ_FANOUT_ABOVE": "150",
    "FEED_WRITE_FANOUT_BELOW": "130",
    # Nothing is trimmed: a read would find it elsewhere if it had never been written.
    "FEED_TIMELINE_LENGTH": "10000",
    "FEED_REBUILD_LENGTH": "10000",
    "FEED_CLEAN_SECONDS": "0.5",
    "API_RATE_READ": "off",
}
_WAVE = PEOPLE[100:]  # who follow the comet, and leave it
_STAY_AWAY = set(PEOPLE[::10])


def left(cluster: Cluster) -> int:
    """How many events are not handled."""
    return sum(cluster.script(LEFT).values())


class Inhabitants:
    """Everybody's life on some threads, until `over` is set; `posted` counts their posts."""

    client_class = Client
    pause = 0.1  # seconds between two steps of a thread

    def __init__(self, cluster: Cluster, token: str, threads: int = 3) -> None:
        self.town = Town()
        self.over = threading.Event()
        self.twice: list[str] = []  # readers who were shown a post twice
        self._cluster, self.token = cluster, token
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, threads), daemon=True)
            for number in range(threads)
        ]

    @property
    def readers(self) -> list[str]:
        return [*PEOPLE, STAR, COMET]

    def settle(self) -> None:
        """Friends and followers; all but a few come once."""
        chance = random.Random(20261122)
        changes = [
            ("befriend", uid, other)
            for number, uid in enumerate(PEOPLE[:-1])
            for other in chance.sample(PEOPLE[number + 1 :], min(8, len(PEOPLE) - number - 1))
        ]
        changes += [("follow", uid, STAR) for uid in PEOPLE[20:]]
        changes += [("follow", uid, COMET) for uid in PEOPLE if uid not in _WAVE]
        with closing(Connection(self._cluster.base_url)) as connection:
            client = self.client_class(connection, self.token)
            for start in range(0, len(changes), 1000):
                client.change_many(changes[start : start + 1000])
            for change in changes:
                self.town.change(*change)
            for reader in self.readers:
                if reader not in _STAY_AWAY:
                    client.timeline(reader)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(300)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]

    def post(self, client: Client, authors: list[str], chance: random.Random) -> list[str]:
        drafts = [
            (uid, VIP if uid in (STAR, COMET) or chance.random() < 0.2 else FRIEND, "written")
            for uid in authors
        ]
        ids = client.post_many(drafts)
        for id, draft in zip(ids, drafts, strict=True):
            self.town.add(Post(id, *draft))
        return ids

    def change(self, client: Client, action: str, uid: str, other: str) -> None:
        """Raises AssertionError when a block was noticed by one of the two only."""
        done = client.change((action, uid, other))
        assert done == self.town.change(action, uid, other), (action, uid, other)

    def differences(self) -> Differences:
        """Between what everybody sees, and what they must see."""
        with closing(Connection(self._cluster.base_url)) as connection:
            client = self.client_class(connection, self.token)
            held = {uid: client.timeline(uid) for uid in self.readers}
        expected = {uid: self.town.timeline(uid) for uid in self.readers}
        return compare(expected, held, is_ordered=True)

    def check(self) -> str:
        """Everybody sees what they must see, nobody a post twice, and what must be written is.
        What there is to say of it."""
        self._cluster.wait_until(lambda: left(self._cluster) == 0, "events to be handled")
        differences = self.differences()
        written, unwritten = self._cluster.script(UNWRITTEN)
        assert self.twice == []
        assert not differences.receivers, differences
        assert unwritten == 0
        return f"{len(self.town.posts)} posts, {written} entries that must be written"

    # -- one thread ------------------------------------------------------------------------------
    def _run(self, number: int, threads: int) -> None:
        chance = random.Random(number)
        mine = PEOPLE[number::threads]
        try:
            with closing(Connection(self._cluster.base_url)) as connection:
                client = self.client_class(connection, self.token)
                while not self.over.wait(self.pause):
                    self._step(client, chance, mine, number)
        except BaseException as error:
            self._errors.append(error)
            raise

    def _step(self, client: Client, chance: random.Random, mine: list[str], number: int) -> None:
        authors = chance.choices(mine, k=8) + [STAR, COMET][number : number + 1]
        ids = self.post(client, authors, chance)
        edited, deleted = chance.sample(ids, 2)
        client.edit(edited, "edited")
        self.town.posts[edited].data = "edited"
        if chance.random() < 0.5:
            client.delete(deleted)
            self.town.posts[deleted].deleted = True
        for _ in range(3):
            self._meet(client, chance, chance.choice(mine))
        if number == 0:  # one thread only: the same pairs
            for uid in chance.sample(_WAVE, 6):
                action = "unfollow" if (COMET, uid) in self.town.follows else "follow"
                self.change(client, action, uid, COMET)
        reader = chance.choice([uid for uid in mine if uid not in _STAY_AWAY])
        page = next(client.timeline_pages(reader, LONG_PAGE))
        if len({shown[0] for shown in page}) < len(page):
            self.twice.append(reader)

    def _meet(self, client: Client, chance: random.Random, uid: str) -> None:
        """A pair is the thread's whose is the one that comes first."""
        later = PEOPLE[PEOPLE.index(uid) + 1 :]
        if not later:
            return
        friends = [other for other in later if (uid, other) in self.town.friends]
        other = chance.choice(friends if friends and chance.random() < 0.6 else later)
        if chance.random() < 0.5:
            uid, other = other, uid
        actions = ["unfriend", "unfollow"] if (uid, other) in self.town.friends else ["befriend"]
        actions = chance.choice([actions, ["follow"], ["block", "unblock"], ["befriend"]])
        for action in actions:
            self.change(client, action, uid, other)
