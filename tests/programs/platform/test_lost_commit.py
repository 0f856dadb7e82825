"""MariaDB is killed when it has stored something and before it can say so: nobody is told that
nothing was done."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bench.harness.mariadb import MariaDb
from tests.servers import DatabaseServer
from tests.support.api_server import Server
from tests.support.children import run
from tests.support.cutting_proxy import CuttingProxy

MESSAGES = "/api/v1/messages"
NEVER, COMMIT = b"\x00 never", b"\x03COMMIT"
STORING = b"biz_msg"  # other threads of the server commit, too
GONE = "gone.sock"

PREPARE = """
from django.core.management import call_command
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
call_command("migrate", verbosity=0)
say(keys.create(Biz.objects.create(name="orders"), "test", ["events:write"])[1])
"""


class Place:
    """The platform's web server; its database is behind a proxy that kills it when asked to."""

    def __init__(self, mariadb: MariaDb, proxy: CuttingProxy, server: Server, key: str) -> None:
        self.mariadb, self.proxy, self.server, self.key = mariadb, proxy, server, key

    def post(self, path: str, body: object) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        given = json.dumps(body).encode()
        status, answer = self.server.request("POST", path, self.key, given, headers)
        return status, json.loads(answer)

    def stored(self, key: str) -> int:
        ((count,),) = self.mariadb.execute(
            "SELECT COUNT(*) FROM lost.biz_msg m JOIN lost.idempotency k ON k.id = m.id"
            f" WHERE k.`key` = '{key}'"
        )
        return int(count)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("db")
    path = folder / "proxy.sock"

    def kill() -> None:
        """From now on nobody can connect, which is another error than a connection that broke."""
        mariadb.kill()
        path.rename(folder / GONE)

    mariadb = DatabaseServer(folder)
    with (
        mariadb,
        CuttingProxy(path, mariadb.socket, NEVER, True, then=kill, after=STORING) as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        key = run(PREPARE, DATABASE_URL=mariadb.create("lost"))
        patch.setenv("DATABASE_URL", f"mysql://root@localhost/lost?unix_socket={path}")
        server = Server(folder / "log")
        yield Place(mariadb, proxy, server, key)
        server.stop()


@pytest.mark.parametrize("many", [False, True], ids=["single", "batch"])
def test_what_was_stored_is_not_called_undone(place: Place, many: bool) -> None:
    key = f"key-{many}"
    event = {"event_type": "order.paid", "payload": 1, "idempotency_key": key}
    path, body = (f"{MESSAGES}/batch", {"messages": [event]}) if many else (MESSAGES, event)
    assert place.post(MESSAGES, {"event_type": "order.paid", "payload": 0})[0] == 202
    place.proxy.marker = COMMIT
    try:
        status, said = place.post(path, body)
        assert place.proxy.cut.is_set()
    finally:
        place.proxy.marker = NEVER
        place.mariadb.start()
        (place.proxy.path.parent / GONE).rename(place.proxy.path)
    assert place.stored(key) == 1
    assert (status, said["type"].rpartition("/")[2]) == (503, "outcome-unknown")
    status, said = place.post(path, body)
    assert (said["results"][0] if many else said)["outcome"] == "duplicate"
    assert place.stored(key) == 1
