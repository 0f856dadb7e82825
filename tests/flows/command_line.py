"""The program `msgp` as somebody runs it, a terminal for it, a consumer, and a bad network."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import requests

from tests.flows.client_projects import PythonProject

_SECONDS = 300  # a machine may be busy


@dataclass
class Done:
    """How a run has ended. No key of the test is in what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """The only object that it printed."""
        (line,) = self.lines
        return json.loads(line)

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class CommandLine:
    """`msgp` with settings of its own; `secrets` must be in nothing that it prints."""

    def __init__(self, project: PythonProject, folder: Path, *secrets: str) -> None:
        self.project, self.folder, self.secrets = project, folder, secrets
        folder.mkdir(exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "xterm",
            "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0, **environment: str) -> Done:
        """Runs a command to its end. Fails when its exit code is another one."""
        variables = {**self.environment, **environment}
        # These are looked at when the libraries are loaded.
        if variables.keys() & {"FORCE_COLOR", "PYTHONIOENCODING"}:
            ended = subprocess.run(
                [str(self.project.msgp), *arguments], cwd=self.folder, input=stdin, env=variables,
                capture_output=True, text=True, timeout=_SECONDS, check=False,
            )  # fmt: skip
            done = Done(ended.returncode, ended.stdout, ended.stderr)
        else:
            done = self._run_forked(arguments, stdin, variables)
        self.check(done)
        assert done.code == code, f"{done.code}: {done.out[-2000:]}\n{done.err[-2000:]}"
        return done

    def _run_forked(
        self, arguments: Sequence[str], stdin: str, environment: Mapping[str, str]
    ) -> Done:
        with TemporaryFile() as typed, TemporaryFile() as out, TemporaryFile() as error:
            typed.write(stdin.encode())
            typed.seek(0)
            program = self.project.host.start(
                "from msgplatform_client.cli import main; main()", ["msgp", *arguments],
                typed.fileno(), out, error, environment, self.folder,
            )  # fmt: skip
            try:
                program.wait(_SECONDS)
            finally:
                program.kill()
            out.seek(0)
            error.seek(0)
            return Done(program.wait(), out.read().decode(), error.read().decode())

    def check(self, done: Done) -> None:
        assert "Traceback" not in done.err, done.err
        assert not any(secret in done.out + done.err for secret in self.secrets if secret)

    def refusal(self, *arguments: str, stdin: str = "", code: int = 1, **environment: str) -> str:
        """The sentence with which a command fails."""
        done = self(*arguments, stdin=stdin, code=code, **environment)
        return " ".join(done.err.split())

    @contextlib.contextmanager
    def running(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until Ctrl-C."""
        process = subprocess.Popen(
            [str(self.project.msgp), *arguments], cwd=self.folder,
            env={**self.environment, **environment}, text=True, bufsize=1,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        watchdog = threading.Timer(_SECONDS, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()

    def interrupt(self, process: subprocess.Popen[str]) -> Done:
        """Ctrl-C, and how it has ended."""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_SECONDS)
        done = Done(process.returncode, out, err)
        self.check(done)
        return done

    def on_a_terminal(self, *arguments: str, typed: dict[str, str]) -> tuple[int, str]:
        """The exit code, and all that the terminal has shown; `typed` has an answer for each
        question."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(str(self.project.msgp), ["msgp", *arguments], self.environment)
        shown, questions = "", dict(typed)
        watchdog = threading.Timer(_SECONDS, os.kill, (pid, signal.SIGKILL))
        watchdog.start()
        with contextlib.suppress(OSError):  # the program has ended
            while piece := os.read(terminal, 4096).decode(errors="replace"):
                shown += piece
                for question in [each for each in questions if each in shown]:
                    os.write(terminal, f"{questions.pop(question)}\n".encode())
        watchdog.cancel()
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def next_line(stream: IO[str] | None) -> str:
    """The next line of a running command. Fails when it has ended."""
    line = stream.readline() if stream else ""
    assert line, "the command has ended"
    return line


@dataclass
class Consumer:
    """An HTTP server of this process: it answers with `status`, after `first_statuses` one by one,
    and keeps what it gets."""

    status: int = 204
    answer: bytes | Callable[[str], bytes] = b""  # a function gets the path
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    first_statuses: list[int] = field(default_factory=list)
    is_cut_off: bool = False  # True: the connection breaks in the answer's body
    content_type: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @contextlib.contextmanager
    def listening(self, port: int = 0) -> Iterator[Consumer]:
        consumer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                consumer.seen.append(({n.lower(): v for n, v in self.headers.items()}, body))
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def _answer(self) -> None:
                first = consumer.first_statuses
                status = first.pop(0) if first else consumer.status
                self.send_response(status)
                has_body = status != 204
                answer = consumer.answer
                answer = answer if isinstance(answer, bytes) else answer(self.path)
                if has_body:
                    length = len(answer) + consumer.is_cut_off
                    self.send_header("content-length", str(length))
                if consumer.content_type:
                    self.send_header("content-type", consumer.content_type)
                self.end_headers()
                if has_body:
                    self.wfile.write(answer)
                    self.close_connection |= consumer.is_cut_off

            def log_message(self, *_: object) -> None:
                pass

        with _serving(Handler, port) as self.port:
            yield self


@dataclass
class LossyNetwork:
    """The way to a platform on which each answer to a `PUT` or `POST` is lost."""

    platform_url: str
    lost: list[str] = field(default_factory=list)  # addresses of what the platform has answered
    url: str = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[LossyNetwork]:
        network = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer = self._answer()
                self.send_response(answer.status_code)
                self.send_header("content-type", answer.headers["content-type"])
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def do_PUT(self) -> None:
                self._answer()
                network.lost.append(self.path)
                self.close_connection = True

            def do_POST(self) -> None:
                self.do_PUT()

            def _answer(self) -> requests.Response:
                names = ("authorization", "content-type", "accept", "if-none-match")
                return requests.request(
                    self.command, network.platform_url + self.path,
                    data=self.rfile.read(int(self.headers.get("content-length", 0))),
                    headers={n: v for n, v in self.headers.items() if n.lower() in names},
                    timeout=_SECONDS,
                )  # fmt: skip

            def log_message(self, *_: object) -> None:
                pass

        with _serving(Handler, 0) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self


@contextlib.contextmanager
def _serving(handler: type[BaseHTTPRequestHandler], port: int) -> Iterator[int]:
    """The port of a server that runs in a thread of this process."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
