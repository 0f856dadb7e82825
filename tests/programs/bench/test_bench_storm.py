"""The rig of storms, on a list in Redis: it finds what is lost, and nothing where nothing is."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from bench.harness.ground import ROOT
from bench.harness.processes import Crew, Program
from bench.preload import Disk
from bench.storm import storm
from bench.storm.__main__ import table
from bench.storm.ground import disk_command
from bench.storm.sides import LOAD, Account, Side
from msgplatform.core.servers.private_server import PrivateServer, RedisServer

_PROGRAM = """
import sys, redis
from pathlib import Path
from bench.storm import publisher

client = redis.Redis(unix_socket_path=sys.argv[1], socket_timeout=10)
publisher.run(200.0, Path(sys.argv[2]), lambda number, due: client.rpush("list", number))
"""


class RedisList(Side):
    """A number is accepted when Redis has it."""

    name, workers = "list", (LOAD,)

    def servers(self) -> Mapping[str, PrivateServer]:
        return {"Redis": self.ground.sms_redis}

    def programs(self) -> Sequence[Program]:
        return []

    def begin(self, crew: Crew) -> None:
        socket, book = self.ground.sms_redis.socket, self.ground.folder / "list.book"
        argv = [sys.executable, "-c", _PROGRAM, str(socket), str(book)]
        crew.add(Program(LOAD, argv, {"PYTHONPATH": str(ROOT)}, ready=book.exists))

    def account(self) -> Account:
        client = redis.Redis(unix_socket_path=str(self.ground.sms_redis.socket))
        return Account.of(self.published("list"), Counter(map(int, client.lrange("list", 0, -1))))


@pytest.fixture
def ground() -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="mp-storm-") as folder:
        yield SimpleNamespace(folder=Path(folder), disk=Disk(Path(folder) / "disk"))


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_storm(ground: Any, is_kept: bool) -> None:
    class Server(RedisServer):
        @property
        def argv(self) -> list[str]:
            return [*disk_command(ground.disk), *super().argv]

    with Server(ground.folder / "redis", ground.folder / "s", appendonly=is_kept) as server:
        ground.sms_redis = server
        side = RedisList(cast(Any, ground), 200.0, 0.3)
        result = storm.run(side, 0.3, storm.Seconds(hung=1.0, full=1.0, patience=3.0))
    strikes = {"SIGKILL load", "SIGSTOP Redis", "SIGKILL Redis", "full disk"}
    assert set(result["strikes"]) == strikes
    assert result["accepted"] > 100
    # Without its file Redis comes back empty, and everything before its kill is lost.
    assert (result["lost"] == 0) is is_kept
    assert "| list |" in table([result])


def test_the_account() -> None:
    assert Account.of({1, 2, 3, 4}, Counter([1, 2, 2, 9])) == Account(4, 2, 1)
