"""Ours under a storm, flow by flow, and what a peer has to say of itself."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.harness.processes import BenchFailed, Crew, Program
from bench.soak import calls, ledger, stage
from bench.soak.books import Books
from bench.storm.ground import StormGround
from msgplatform.core.servers.private_server import PrivateServer

_READY_SECONDS = 180.0
LOAD = "load"


@dataclass(frozen=True)
class Account:
    """Messages by the books of the client and of the other end: `accepted` by the side, `lost`
    (accepted, and not there), `twice` (there more than once)."""

    accepted: int
    lost: int
    twice: int

    @classmethod
    def of(cls, accepted: set[int], arrived: Counter[int]) -> Account:
        twice = sum(1 for times in arrived.values() if times > 1)
        return cls(len(accepted), len(accepted - arrived.keys()), twice)


class Side:
    """A side of a storm. `settings` are those that make it safest, each with its reason."""

    name = ""
    settings: Sequence[tuple[str, str]] = ()
    workers: Sequence[str] = ()  # programs that are killed; they are started again when they end

    def __init__(self, ground: StormGround, rate: float, seconds: float) -> None:
        self.ground, self.rate, self.seconds = ground, rate, seconds

    @classmethod
    def install(cls) -> None:
        """Install what the side needs. Raises SideMissing."""

    def servers(self) -> Mapping[str, PrivateServer]:
        """The servers that are stopped and killed, by name."""
        raise NotImplementedError

    def programs(self) -> Sequence[Program]:
        """The programs in the order in which they start."""
        raise NotImplementedError

    def begin(self, crew: Crew) -> None:
        """Wait until the programs take messages, and start the load as the program LOAD."""
        raise NotImplementedError

    def account(self) -> Account:
        """The books so far."""
        raise NotImplementedError

    def end(self) -> None:
        """Let programs come to rest that would not heed SIGTERM."""

    def publish(self, crew: Crew, kind: str, to: object, python: object = sys.executable) -> None:
        """Start `bench.storm.publisher`."""
        argv = [python, "-m", "bench.storm.publisher", kind, "--rate", self.rate, "--to", to]
        argv += ["--book", self.ground.folder / f"{kind}.book"]
        crew.add(Program(LOAD, list(map(str, argv)), self.ground.environment, load=True))

    def published(self, kind: str) -> set[int]:
        """The numbers in the book of a publisher."""
        lines = (self.ground.folder / f"{kind}.book").read_text().splitlines()
        return {int(line.split(" ", 1)[0]) for line in lines}


class Ours(Side):
    """One process of each program of a flow, with its defaults."""

    name = "ours"
    flow = place = ""
    has_sms = False
    settings: Sequence[tuple[str, str]] = (
        ("MariaDB: innodb_flush_log_at_trx_commit=1", "an answer comes after the commit"),
        ("work Redis without a disk", "the database is the truth: its queues are made again"),
    )

    def servers(self) -> Mapping[str, PrivateServer]:
        servers = {"MariaDB": self.ground.server, "work Redis": self.ground.redis}
        return servers | ({"SMS Redis": self.ground.sms_redis} if self.has_sms else {})

    def programs(self) -> Sequence[Program]:
        self.cast = stage.create(self.ground)
        self.books = Books(self.ground.folder)
        programs = {program.label: program for program in stage.programs(self.ground)}
        load = ["consumer", "smg"] if self.has_sms else ["consumer"]
        return [programs[label] for label in (*load, *self.workers)]

    def begin(self, crew: Crew) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not stage.is_ready(self.ground):
            if time.monotonic() > deadline:
                raise BenchFailed(f"the platform is not ready\n{crew.output()}")
            time.sleep(0.2)
        self.make_ready()
        token = self.cast.tokens[self.flow]
        crew.add(stage.caller(self.ground, self.flow, token, self.rate, label=LOAD))

    def make_ready(self) -> None:
        """Do what comes before the first message."""

    def account(self) -> Account:
        return account_of(self.books, self.flow, self.place)


def account_of(books: Books, flow: str, place: str) -> Account:
    """The account of what a client had accepted and the consumer got at a place."""
    books.read()
    arrived = Counter(books.arrived[place])
    arrived.update({each.number for each in books.repeats if each.place == place})
    return Account.of(set(books.accepted[flow]), arrived)


class OurNotify(Ours):
    flow, place = "notify", "fast"
    workers = ("run_maker", "run_sender", "run_marker", "web")


class OurSms(Ours):
    flow = place = "sms"
    has_sms = True
    workers = (
        "run_sms_sender", "run_sms_receiver", "run_report_forwarder", "run_data_pump",
        *OurNotify.workers,
    )  # fmt: skip
    settings = (
        *Ours.settings,
        ("SMS Redis: appendonly yes, appendfsync always", "an answer comes after its fsync"),
    )


class OurSync(Ours):
    flow, place = "crmsync", "crm"
    workers = ("run_sync_poller", "run_sync_handler", "web")


class OurFeed(Ours):
    flow = "feed"
    workers = ("run_feed_dispatcher", "web")

    def make_ready(self) -> None:
        stage.make_friends(self.ground, self.cast.tokens["feed"])

    def account(self) -> Account:
        self.books.read()
        token = self.cast.tokens["feed"]
        texts = ledger.read_timeline(
            lambda path: stage.request(self.ground, path[path.index("/api") :], token)
        )
        arrived = Counter(map(calls.number_of, texts))
        return Account.of(set(self.books.accepted["feed"]), arrived)
