"""The servers of a storm: their files are on a disk that can be full."""

import socket
from pathlib import Path
from typing import Self

from bench.harness.ground import Ground
from bench.harness.mariadb import MariaDb
from bench.preload import Disk
from msgplatform.core.servers.private_server import PrivateServer, RedisServer, free_port

# Its own threads write, so that the disk sees what they write.
_MARIADB = {"innodb_flush_log_at_trx_commit": 1, "innodb_use_native_aio": 0}
_API = {"API_RATE_READ": "1000000/min"}


class StormGround(Ground):
    """`sms_redis` writes each answer to the disk before it gives it (`appendfsync always`), the
    work Redis writes nothing. What a killed MariaDB has answered is on the disk."""

    def __init__(self) -> None:
        super().__init__("mariadb")
        # InnoDB of MariaDB 10.11 marked an index as corrupt after its file could not grow: its
        # tables have room, all its other files have none.
        self.disk = disk = Disk(self.folder / "disk", reserved=".ibd")

        class Database(MariaDb):
            @property
            def argv(self) -> list[str]:
                return [*disk_command(disk), *super().argv]

        class KeepingRedis(RedisServer):
            @property
            def argv(self) -> list[str]:
                return [*disk_command(disk), *super().argv]

        self.mariadb = Database(self.folder / "db", _MARIADB)
        redis = self.sms_redis
        self.redis_port = free_port()  # for peers that know no socket
        self.sms_redis = KeepingRedis(
            redis.directory, redis.socket, port=self.redis_port, appendonly=True
        )

    def __enter__(self) -> Self:
        super().__enter__()
        self.environment |= _API
        return self


def disk_command(disk: Disk) -> list[str]:
    """The beginning of the command line of a server whose files are on the disk."""
    return ["/usr/bin/env", *disk.environment]


class PeerServer(PrivateServer):
    """A peer's own server, such as Kannel's bearerbox, which is ready when its port listens."""

    def __init__(self, ground: StormGround, name: str, argv: list[str], port: int) -> None:
        self.name = name
        folder: Path = ground.folder / name
        super().__init__(folder, folder / "none")
        self._argv, self._port = [*disk_command(ground.disk), *argv], port

    @property
    def argv(self) -> list[str]:
        return self._argv

    def answers(self) -> bool:
        return listens(self._port)


def listens(port: int) -> bool:
    """True if a program of this machine listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
