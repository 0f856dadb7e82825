"""A platform that was installed below a folder of its own, as a new user runs it: programs of that
folder, servers of this machine, and the first signed delivery."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from bench.harness.mariadb import MariaDb
from msgplatform.core.servers.private_server import RedisServer, free_port

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300.0
PROGRAMS = ("run_maker", "run_sender", "run_marker")
SET_UP = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
shop = Biz.objects.create(name="shop")
till = Receive.objects.create(name="till", url={url!r})
BizReceive.objects.create(biz=shop, receive=till)
print(json.dumps([keys.create(shop, "client", ["events:write"])[1], till.secret]))
"""


@dataclass
class Root:
    """A folder with a system of its own. Its programs see this machine's network, and `data` at
    `state_dir`; with `is_read_only` they can write there and into /tmp alone."""

    folder: Path
    data: Path
    environment: Mapping[str, str]
    user: str = "root"
    working_directory: str = "/"
    state_dir: str = "/data"
    is_read_only: bool = True
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, words: Sequence[str]) -> list[str]:
        root, inside = self.folder, f"{self.folder}{self.state_dir}"
        steps = [
            f"mount --bind {root} {root}",
            *([f"mount -o remount,ro,bind {root} {root}"] if self.is_read_only else []),
            *(f"mount --bind /dev {root}/dev", f"mount -t proc proc {root}/proc"),
            f"mount -t tmpfs tmpfs {root}/tmp",
            f"if [ -d {inside} ]; then mount --bind {self.data} {inside}; fi",
        ]
        steps.append(
            f"exec chroot --userspec={self.user} {root} env -i"
            f' --chdir={self.working_directory} "$@"'
        )
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return [
            *("unshare", "--mount", "--pid", "--fork", "sh", "-euc"),
            *("; ".join(steps), "sh", *variables, *words),
        ]

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command(words), capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def start(self, *words: str) -> None:
        log = (self.data.parent / f"program-{len(self.processes)}.log").open("wb")
        self.processes.append(
            subprocess.Popen(self.command(words), stdout=log, stderr=log, start_new_session=True)
        )

    def stop(self) -> None:
        """Kill all that was started; a program dies with the first one of its PID namespace."""
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def logs(self) -> str:
        texts = [log.read_text()[-1500:] for log in sorted(self.data.parent.glob("program-*.log"))]
        return "\n".join(texts)


def bare_debian(suite: str, folder: Path) -> Root:
    """A Debian with apt and nothing else below `folder`, where root installs packages."""
    archive = ROOT / "var" / f"debian-{suite}.tar"
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        new = archive.with_suffix(".new.tar")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", suite, new], check=True)
        new.rename(archive)
    root, data = folder / "debian", folder / "data"
    for each in (root, data):
        each.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", root, "--exclude=./dev/*"], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
    environment["DEBIAN_FRONTEND"] = "noninteractive"
    if certificates := os.environ.get("PIP_CERT"):  # of a proxy
        shutil.copy(certificates, root / "etc" / "certificates.pem")
        environment["PIP_CERT"] = "/etc/certificates.pem"
    return Root(root, data, environment, is_read_only=False)


@contextlib.contextmanager
def private_servers() -> Iterator[dict[str, str]]:
    """A MariaDB and two Redis, reached over TCP; the settings that name them."""
    short = Path(tempfile.mkdtemp(prefix="mp-installed-"))  # a socket's path is short
    ports = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, short, ignore_errors=True)
        database = stack.enter_context(MariaDb(short / "db"))
        for name, port in zip(("work", "sms"), ports, strict=True):
            socket = short / f"{name}.sock"
            server = RedisServer(short / name, socket, port=port, appendonly=name == "sms")
            stack.enter_context(server)
        database.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        database.execute("GRANT ALL ON *.* TO shop@'127.0.0.1' IDENTIFIED BY 'shop'")
        yield {
            "SECRET_KEY": "only-for-this-test-" * 3,
            "ENCRYPTION_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "DATABASE_URL": f"mysql://shop:shop@127.0.0.1:{database.port}/shop",
            "REDIS_URL": f"redis://127.0.0.1:{ports[0]}/0",
            "SMS_REDIS_URL": f"redis://127.0.0.1:{ports[1]}/0",
            "PUBLIC_URL": "http://127.0.0.1:8000",
            "OUTBOUND_ALLOW": "127.0.0.1/32",
        }


class Receiver:
    """Keeps what it gets, and verifies it by the official library."""

    def __init__(self) -> None:
        requests: list[tuple[dict[str, str], bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                requests.append((dict(self.headers.items()), body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.requests = requests
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def first(self, secret: str) -> Any:
        """The payload of the first delivery."""
        headers, body = self.requests[0]
        return Webhook(secret).verify(body, {k.lower(): v for k, v in headers.items()})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def ask(url: str, key: str = "", body: object = None) -> tuple[int, Any]:
    """Status and JSON; (0, None) where nobody listens."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers), timeout=30
        ) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None


def until(root: Root, condition: Any, name: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{name}\n{root.logs()}"
        ended = [process for process in root.processes if process.poll() is not None]
        assert ended == [], f"a program ended before {name}\n{root.logs()}"
        time.sleep(0.1)


def deliver(root: Root, manage: Sequence[str], web: Sequence[str]) -> None:
    """Make the tables, start web server and programs, ask /readyz, and deliver an event."""
    port = free_port()
    try:
        root.run(*manage, "migrate", "-v0")
        root.start(*web, "--port", str(port))
        for program in PROGRAMS:
            root.start(*manage, program)
        first_delivery(root, manage, f"http://127.0.0.1:{port}")
    finally:
        root.stop()


def first_delivery(root: Root, manage: Sequence[str], base: str) -> str:
    """Set up a system with a consumer of its own, publish an event, and verify its delivery; the
    system's API key."""
    receiver = Receiver()
    try:
        until(root, lambda: ask(f"{base}/readyz")[0] == 200, "/readyz")
        set_up = SET_UP.format(url=receiver.url)
        key, secret = json.loads(root.run(*manage, "shell", "-v0", "-c", set_up))
        event = {"event_type": "order.paid", "payload": {"order": 7}}
        status, answer = ask(f"{base}/api/v1/messages", key, event)
        assert (status, answer["outcome"]) == (202, "created"), (status, answer)
        until(root, lambda: receiver.requests, "the delivery")
        assert receiver.first(secret)["type"] == "order.paid"
        return str(key)
    finally:
        receiver.close()
