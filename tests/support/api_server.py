"""The web server as a process of its own, with the tests' API beside the platform's."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from msgplatform import env
from msgplatform.core.servers.private_server import free_port
from tests.program_host import Program, start_program

JSON = {"Content-Type": "application/json"}


START_SECONDS = 180


class Server:
    """The web server; `application` is another one than the platform's own, `environment` more
    settings. An idle connection is closed after `head_seconds`, as is one without a whole head. One
    whose application changes what Django's setup reads is not `is_forked` (program_host.py)."""

    def __init__(
        self,
        log: Path,
        application: str = "msgplatform.doors.web.asgi:application",
        environment: Mapping[str, str] | None = None,
        head_seconds: int = 60,
        *,
        is_forked: bool = True,
    ) -> None:
        self.port = free_port()
        # In a session of its own its workers can be killed with it.
        program = (
            "import os; os.setsid(); from msgplatform.doors.web.__main__ import Options, serve; "
            f"serve(Options(port={self.port}, head_seconds={head_seconds}), {application!r})"
        )
        command = [sys.executable, "-c", program]
        self.log = log
        # Other applications say so themselves.
        is_own = application.startswith("msgplatform.")
        settings = "tests.support.api_settings" if is_own else "msgplatform.settings"
        variables = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": settings,
            "ALLOWED_HOSTS": "127.0.0.1",
            **(environment or {}),
        }
        with log.open("wb") as out:
            self.process: subprocess.Popen[bytes] | Program
            if is_forked:
                self.process = start_program(command, subprocess.DEVNULL, out, variables)
            else:
                self.process = subprocess.Popen(
                    command, cwd=env.BASE_DIR, env=variables, stdout=out, stderr=out
                )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                assert self.request("GET", "/healthz")[0] == 200
                return
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.05)

    def request(
        self,
        method: str,
        path: str,
        key: str | None = None,
        body: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        authorized = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            # A server that has heard enough answers and closes while we still send.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, path, body, {**authorized, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def cpu_seconds(self) -> float:
        """The CPU time of the server and its workers since they began."""
        supervisor = psutil.Process(self.process.pid)
        times = [each.cpu_times() for each in (supervisor, *supervisor.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("granian") / "log")
    yield server
    server.stop()
