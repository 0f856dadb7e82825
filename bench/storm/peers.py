"""Peers under a storm, each with the safest settings that it documents."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

from bench.crmsync import leads
from bench.feed import stream_feeds
from bench.feed.fan_out import StreamFramework
from bench.gateway.sms_kannel import Kannel
from bench.harness.processes import Crew, Program
from bench.harness.programs.progress import Progress
from bench.references import environment
from bench.references.bullmq import programs as bullmq
from bench.references.kannel import configuration
from bench.soak import calls
from bench.soak.books import Books
from bench.storm.ground import PeerServer, StormGround, listens
from bench.storm.publisher import READERS
from bench.storm.sides import (
    LOAD,
    Account,
    OurFeed,
    OurNotify,
    Ours,
    OurSms,
    OurSync,
    Side,
    account_of,
)
from msgplatform.core.servers.private_server import PrivateServer, free_port

_RUN_SECONDS = 15.0  # of a run of dlt
_KEPT = ("Redis: appendonly yes, appendfsync always, noeviction", "Redis is the only record")


class BullMq(Side):
    """BullMQ's `add` and Worker on Node.js, delivering to the same consumer as ours."""

    name, workers = "bullmq", ("worker",)
    settings = (
        _KEPT,
        ("the job's id is the message's, kept for an hour", "a repeated `add` makes no second job"),
        ("8 attempts, exponential backoff", "a failed delivery is tried again"),
        ("maxStalledCount 20 instead of 1", "a worker may be killed with the same job again"),
    )

    @classmethod
    def install(cls) -> None:
        bullmq.modules()

    def servers(self) -> Mapping[str, PrivateServer]:
        return {"Redis": self.ground.sms_redis}

    def programs(self) -> Sequence[Program]:
        self.books = Books(self.ground.folder)
        worker = bullmq.program(
            self.ground, "worker", "work.cjs", redis=self.ground.sms_redis.socket,
            connections=64, max_stalled=20,
        )  # fmt: skip
        return [_consumer(self.ground), worker]

    def begin(self, crew: Crew) -> None:
        ground, traces = self.ground, self.ground.file("traces")
        count = int(self.rate * (self.seconds + 600) * 1.2)
        traces.write_text("\n".join(map(calls.trace, range(count))))
        load = bullmq.program(
            ground, LOAD, "publish.cjs", redis=ground.sms_redis.socket,
            url=f"http://127.0.0.1:{ground.sink_port}/fast", rate=self.rate, traces=traces,
            book=ground.file("notify.book"),
        )  # fmt: skip
        crew.add(load)

    def account(self) -> Account:
        return account_of(self.books, "notify", "fast")


class KannelStorm(Side):
    """Kannel's bearerbox and smsbox, an SMPP center that answers, and a consumer of receipts."""

    name, workers = "kannel", ("smsbox",)
    settings = (
        ("store-type redis, dlr-storage redis", "its files are never synced, and a restart forgets "
         "receipts that are in memory"),
        _KEPT,
        ("http-request-retry 1000", "a GET of a receipt that fails is repeated"),
        ("msg-id-type, connections and window as in the bench `sms`", "the same way as there"),
    )  # fmt: skip

    @classmethod
    def install(cls) -> None:
        Kannel.install_programs()

    def __init__(self, ground: StormGround, rate: float, seconds: float) -> None:
        super().__init__(ground, rate, seconds)
        self._ports = configuration.Ports(
            free_port(), ground.sms_port, ground.web_port, ground.smg_port
        )
        self._file = ground.file("kannel.conf")
        configuration.write(self._file, self._ports, ground.redis_port, receipt_tries=1000)
        argv, variables = Kannel.command("bearerbox", self._file)
        set_variables = [f"{name}={value}" for name, value in variables.items()]
        self._bearerbox = PeerServer(
            ground, "bearerbox", [*set_variables, *argv], self._ports.smsbox
        )

    def servers(self) -> Mapping[str, PrivateServer]:
        return {"bearerbox": self._bearerbox, "Redis": self.ground.sms_redis}

    def programs(self) -> Sequence[Program]:
        ground, ports, self.books = self.ground, self._ports, Books(self.ground.folder)
        center = ground.module(
            "center", "bench.references.kannel.center", "--port", ports.center,
            "--submits", ground.file("center.submits"),
            load=True, ready=lambda: listens(ports.center),
        )  # fmt: skip
        argv, variables = Kannel.command("smsbox", self._file)
        smsbox = Program(
            "smsbox", argv, {**ground.environment, **variables}, ready=lambda: listens(ports.http)
        )
        return [_consumer(ground), center, smsbox]

    def begin(self, crew: Crew) -> None:
        self.publish(crew, "sms", f"{self._ports.http},{self.ground.sink_port}")

    def account(self) -> Account:
        return account_of(self.books, "sms", "sms")


class Dlt(Side):
    """dlt from the table `lead` into the table of another database, again and again."""

    name, workers = "dlt", ("dlt",)
    settings = (
        ("merge by primary key, delete-insert", "a package that is loaded again changes nothing"),
        ("incremental with a lag of 10 s", "rows are committed later than their time"),
        ("its state in a folder that stays", "a run that was killed is finished by the next one"),
        ("MariaDB: innodb_flush_log_at_trx_commit=1", "an answer comes after the commit"),
    )
    _crm = "crm"

    @classmethod
    def install(cls) -> None:
        environment.locked_python("dlt")

    def servers(self) -> Mapping[str, PrivateServer]:
        return {"MariaDB": self.ground.server}

    def programs(self) -> Sequence[Program]:
        ground = self.ground
        ground.server.execute(f"CREATE DATABASE {self._crm}")
        self._asked, done = Progress(ground.file("dlt.asked")), Progress(ground.file("dlt.done"))
        self._asked.count = 1 << 40
        argv = [
            *(environment.locked_python("dlt"), "-m", "bench.references.dlt_sync"),
            *("--backend", "sqlalchemy", "--lag", 10, "--dataset", self._crm),
            *("--asked", self._asked.file, "--progress", done.file),
            *("--state", ground.folder / "dlt"),
            *("--source", self._url("bench"), "--target", self._url(self._crm)),
        ]
        return [Program("dlt", list(map(str, argv)), ground.environment)]

    def _url(self, database: str) -> str:
        url = self.ground.server.url(database).replace("mysql://", "mysql+mysqldb://")
        return f"{url}&charset=utf8mb4"

    def begin(self, crew: Crew) -> None:
        self.publish(crew, "leads", self.ground.server.socket)

    def end(self) -> None:
        """A run takes SIGTERM for itself: no more runs are asked for."""
        self._asked.count = 0
        time.sleep(_RUN_SECONDS)

    def account(self) -> Account:
        rows = self.ground.server.execute(f"SELECT id FROM {self._crm}.lead")
        numbers = Counter(leads.lead_number(int(row[0])) for row in rows)
        return Account.of(self.published("leads"), numbers)


class StreamStorm(Side):
    """stream-framework's RedisFeed, written by the program that posts."""

    name, workers = "stream-framework", (LOAD,)
    settings = (
        _KEPT,
        ("a post is accepted when each reader's feed has it", "it has no queue of its own"),
        ("the same id for a repeated post", "an entry of a sorted set is there once"),
    )

    @classmethod
    def install(cls) -> None:
        cls._python = StreamFramework.own_python()

    _python = Path()

    def servers(self) -> Mapping[str, PrivateServer]:
        return {"Redis": self.ground.sms_redis}

    def programs(self) -> Sequence[Program]:
        return []

    def begin(self, crew: Crew) -> None:
        self.publish(crew, "posts", self.ground.sms_redis.socket, self._python)

    def account(self) -> Account:
        client = redis.Redis(unix_socket_path=str(self.ground.sms_redis.socket))
        accepted = self.published("posts")
        numbers = {stream_feeds.activity_id(number): number for number in accepted}
        seen: Counter[int] = Counter()  # in how many feeds a post is
        for reader in range(READERS):
            entries: Any = client.zrange(f"feed_{reader}", 0, -1)
            members = map(int, entries)
            seen.update(numbers[member] for member in members if member in numbers)
        whole = [number for number, feeds in seen.items() if feeds == READERS]
        return Account.of(accepted, Counter(whole))


def _consumer(ground: StormGround) -> Program:
    return ground.module(
        "consumer", "bench.soak.consumer", *("--port", ground.sink_port),
        *("--book", ground.file("arrived.book"), "--folder", ground.folder),
        load=True, ready=lambda: listens(ground.sink_port),
    )  # fmt: skip


# The peers, each with ours beside it.
PEERS: Mapping[str, tuple[type[Ours], type[Side]]] = {
    BullMq.name: (OurNotify, BullMq),
    Dlt.name: (OurSync, Dlt),
    KannelStorm.name: (OurSms, KannelStorm),
    StreamStorm.name: (OurFeed, StreamStorm),
}
