"""One web server follows another on the same socket: no connection is refused or reset, and
granian's private names still are what `Server` takes them for. One that follows a killed one gets
its address."""

import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from msgplatform.core.servers.private_server import free_port
from msgplatform.doors.web.__main__ import hand_over, listen
from tests.waiting import freeze, pause

APPLICATION = """
import asyncio, os
async def application(scope, receive, send):
    if scope["type"] == "http":
        await asyncio.sleep(0.002)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(os.getppid()).encode()})
"""
SERVE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from msgplatform.doors.web.__main__ import Options, serve
path, port = Path(sys.argv[1]) / "web.sock", int(sys.argv[2])
serve(Options(port=port, workers=2, drain_seconds=10, handover=path), "app:application")
"""
ROUNDS = 3


def ask(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/")
        return int(connection.getresponse().read())
    finally:
        connection.close()


class Load(threading.Thread):
    """Each request has a connection of its own."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.over = threading.Event()
        self.answers: Counter[int] = Counter()  # pid of the server → its answers
        self.errors: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self.answers[ask(self._port)] += 1
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(repr(error))


def test_no_connection_is_lost_while_servers_follow_one_another(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(APPLICATION)

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SERVE, str(tmp_path), str(port)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def answers(pid: int) -> bool:
        try:
            return ask(port) == pid
        except OSError:
            return False

    server = start()
    loads = [Load(port) for _ in range(4)]
    try:
        begun = time.monotonic()
        while not answers(server.pid):
            pause(begun, 0.05)
        for load in loads:
            load.start()
        for _ in range(ROUNDS):
            successor = start()
            while not answers(successor.pid):
                assert successor.poll() is None
            server.terminate()
            server.wait(30)
            server = successor
            begin = sum(load.answers[server.pid] for load in loads)
            while sum(load.answers[server.pid] for load in loads) < begin + 50:
                pause(begun, 0.01)
    finally:
        for load in loads:
            load.over.set()
            load.join()
        server.terminate()  # its workers end with it; after SIGKILL they would not
        server.wait(30)
    errors = [error for load in loads for error in load.errors]
    # Granian closes a connection that it has accepted in its last moment, before a request came.
    assert len(errors) <= ROUNDS * len(loads)
    assert {error.partition("(")[0] for error in errors} <= {"RemoteDisconnected"}


def test_a_server_gets_the_socket_of_the_one_that_is_left(tmp_path: Path) -> None:
    """A release that did not work had asked for it, and has ended."""
    path, port = tmp_path / "web", free_port()
    first = listen("127.0.0.1", port, 16, path)
    hand_over(first, path)
    code = (
        "import sys; from pathlib import Path;"
        "from msgplatform.doors.web.__main__ import hand_over, listen;"
        "listener = listen('127.0.0.1', int(sys.argv[2]), 16, Path(sys.argv[1]));"
        "hand_over(listener, Path(sys.argv[1]))"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(path), str(port)], check=True)
    listen("127.0.0.1", port, 16, path).close()
    first.close()


@contextmanager
def handing_over(path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that hands its socket over."""
    code = (
        "import sys, time; from pathlib import Path;"
        "from msgplatform.doors.web.__main__ import hand_over, listen;"
        "listener = listen('127.0.0.1', int(sys.argv[2]), 16, None);"
        "hand_over(listener, Path(sys.argv[1])); print('!', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(port)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_server_that_was_killed_leaves_a_path_that_nobody_serves(tmp_path: Path) -> None:
    path, port = tmp_path / "web.sock", free_port()
    with handing_over(path, port):
        listen("127.0.0.1", port, 16, path).close()  # not bound anew: it is in use
        listen("127.0.0.1", free_port(), 16, path).close()  # another address is bound
    listen("127.0.0.1", port, 16, path).close()


def test_a_server_hands_its_socket_over_after_one_that_did_not_wait(tmp_path: Path) -> None:
    path, port = tmp_path / "web.sock", free_port()
    with handing_over(path, port) as process:
        freeze(process.pid)
        with socket.socket(socket.AF_UNIX) as hasty:
            hasty.connect(f"{path}.{process.pid}")
        process.send_signal(signal.SIGCONT)
        listen("127.0.0.1", port, 16, path).close()


def start_alone(folder: Path, port: int, seconds: float) -> subprocess.Popen[bytes]:
    """A server without a predecessor, which waits so long for an address in use."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import msgplatform.doors.web.__main__ as web;"
        "web.IN_USE_SECONDS = float(sys.argv[3]);"
        "web.serve(web.Options(port=int(sys.argv[2])), 'app:application')"
    )
    command = [sys.executable, "-c", code, str(folder), str(port), str(seconds)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def test_a_server_waits_for_an_address_that_a_killed_one_still_has(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(APPLICATION)
    with listen("127.0.0.1", port, 16, None):
        server = start_alone(tmp_path, port, 300)
        assert server.stderr
        line = server.stderr.readline().decode()
        assert line == f"Port {port} of 127.0.0.1 is in use: waiting up to 300 s for it.\n"
    begun = time.monotonic()
    while True:
        try:
            assert ask(port) == server.pid
            break
        except OSError:
            assert server.poll() is None, server.communicate()
            pause(begun, 0.05)
    server.terminate()
    server.communicate(timeout=60)


def test_a_server_says_that_its_address_stays_in_use(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.py").write_text(APPLICATION)
    with listen("127.0.0.1", port, 16, None):
        server = start_alone(tmp_path, port, 0.2)
        error = server.communicate(timeout=120)[1].decode()
    assert server.returncode == 1
    assert error.splitlines()[1:] == [
        f"The web server cannot listen at port {port} of 127.0.0.1: Address already in use."
    ]


def test_a_worker_that_still_loads_its_application_dies_with_the_server(tmp_path: Path) -> None:
    """It holds the socket meanwhile, which the next server needs."""
    (tmp_path / "app.py").write_text("import sys, time; sys.stderr.write('!\\n'); time.sleep(600)")
    server = start_alone(tmp_path, free_port(), 0.2)
    assert server.stderr
    while server.stderr.readline() != b"!\n":
        assert server.poll() is None
    (worker,) = psutil.Process(server.pid).children()
    server.send_signal(signal.SIGKILL)
    server.wait()
    try:
        worker.wait(60)
    finally:
        if worker.is_running():
            worker.kill()
