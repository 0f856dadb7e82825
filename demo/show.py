"""The demo: the whole platform on this machine, real traffic through all flows side by side, an
account of every message; then a trickle of traffic through every flow, until it is stopped."""

import os
import secrets
import shutil
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connection, connections

from demo.run import Run, Scenario, scenarios
from msgplatform import env
from msgplatform.core.data import engines
from msgplatform.core.secrets import encryption
from msgplatform.core.servers.logged_errors import unexpected_errors
from msgplatform.core.servers.private_server import free_port

MIN_MESSAGES = 1000
ADMIN = "admin"
_MARK = "MSGPLATFORM_DEMO"
_HOST, _PORT = "127.0.0.1", 8000
_READY_SECONDS = 300.0  # twenty programs start, perhaps on a small machine that does other things


def enter(port: int, database: str) -> None:
    """Start this command again with the demo's own settings, unless that was done already.

    Settings are read once, at start, so the variables for a new folder, an embedded Redis and a
    free port must be set before Django starts.
    """
    if os.environ.get(_MARK):
        return
    from msgplatform.operation.supervision.run import is_running

    folder = env.state_dir() / "demo"
    if is_running(folder):
        raise CommandError(f"a demo is running already in {folder}; stop it with Ctrl-C first")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    write_encryption_key(folder)
    port, listener = _hold_port(port)
    listener.set_inheritable(True)  # the process that begins below keeps it
    environment = {name: value for name, value in os.environ.items() if not configures(name)}
    settings = {
        _MARK: f"{port} {listener.fileno()}",
        "STATE_DIR": str(folder),
        "SECRET_KEY": secrets.token_urlsafe(50),
        "PUBLIC_URL": f"http://{_HOST}:{port}",
        "OUTBOUND_ALLOW": "127.0.0.0/8",
        "LOG_LEVEL": os.environ.get("LOG_LEVEL", "WARNING"),
    }
    if database:
        settings["DATABASE_URL"] = database
    for scenario in scenarios():
        settings |= scenario.environment()
    arguments = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, arguments, {**environment, **settings})  # noqa: S606 - ourselves


def write_encryption_key(folder: Path) -> None:
    """Into the file that the settings read, so that later commands can decrypt the demo's data."""
    path = folder / "encryption_key"
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(encryption.new_key() + "\n")


def configures(name: str) -> bool:
    """True if a variable could lead the demo to a real database, Redis or network."""
    prefixes = [scenario.environment_prefix for scenario in scenarios()]
    name = name.removesuffix("_FILE")
    return name in {"DEBUG", "SECRET_KEY", "ENCRYPTION_KEY", "ALLOWED_HOSTS"} or name.startswith(
        (
            *("DATABASE_", "COLD_DATABASE_", "REDIS_", "OUTBOUND", "METRICS_", "API_"),
            *filter(None, prefixes),
        )
    )


def _hold_port(port_option: int) -> tuple[int, socket.socket]:
    """Take the requested port; for 0 the one where people expect it, or else any free one."""
    from msgplatform.operation.supervision import address
    from msgplatform.operation.supervision.run import Refused

    try:
        return port_option or _PORT, address.hold(_HOST, port_option or _PORT)
    except Refused as error:
        if port_option:
            raise CommandError(str(error)) from None
    port = free_port()
    return port, address.hold(_HOST, port)


class Demo:
    """Starts the platform and runs every flow's part."""

    def __init__(self, messages: int, timeout: float) -> None:
        from django.conf import settings

        from msgplatform.operation.supervision.platform import Platform

        self.port, descriptor = map(int, os.environ[_MARK].split())
        self.run = Run(settings.PUBLIC_URL, messages, Path(settings.STATE_DIR), timeout)
        self.platform = Platform(
            _HOST, self.port, reservation=socket.socket(fileno=descriptor), say=self.run.say,
            migrate=True,
        )  # fmt: skip
        self.password = secrets.token_urlsafe(12)
        self._stopped = threading.Event()

    def start(self) -> None:
        from django.contrib.auth import get_user_model

        if connection.introspection.table_names():
            raise CommandError("the demo needs an empty database: this one has tables")
        connection.close()
        self.run.say("starting Redis, the web server and the daemons …")
        self.platform.start()
        self._wait_until_ready()
        get_user_model().objects.create_superuser(ADMIN, password=self.password)

    def account(self) -> dict[str, Any]:
        """Every flow's figures, and what programs logged at level error; `ok` is false when a
        message is missing, a flow has a problem, or an error was logged."""
        figures = self._run_flows()
        errors = unexpected_errors(self.run.folder / "logs")
        is_ok = (
            bool(figures)
            and not errors
            and all(
                account["lost"] == 0
                and account["accepted"] >= account.get("at_least", MIN_MESSAGES)
                and not account.get("problem")
                for account in figures.values()
            )
        )
        return {"ok": is_ok, "flows": figures, "errors": errors}

    def _run_flows(self) -> dict[str, Mapping[str, Any]]:
        """Run all flows at the same time; each waits for its own deliveries most of the time."""
        figures: dict[str, Mapping[str, Any]] = {}
        errors: list[BaseException] = []

        def run(scenario: Scenario) -> None:
            try:
                # On a busy machine others may write for long.
                engines.of().limit_lock_wait(connection, int(self.run.timeout))
                figures[scenario.flow] = scenario.play(self.run)
            except Exception as error:  # noqa: BLE001 - raised again in the main thread
                errors.append(error)
            finally:
                self.run.be_ready()
                connections.close_all()
                finished.release()
            # Programs that this thread started end with it: the kernel takes it for their parent.
            self._stopped.wait()

        finished = threading.Semaphore(0)
        # Daemons: they end with an interrupted demo. A bounded wait lets signals through.
        parts = scenarios()
        threads = [threading.Thread(target=run, args=(part,), daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        for _ in threads:
            while not finished.acquire(timeout=0.2):
                pass
            if errors:
                raise errors[0]
        return {part.flow: figures[part.flow] for part in parts}

    def go_on(self) -> None:
        """Let traffic trickle through every flow until `stop`."""
        for trickle in self.run.trickles:
            trickle.start()

    def stop(self) -> None:
        """Stop the traffic, then the platform, then the receivers."""
        for trickle in self.run.trickles:
            trickle.stop()
        with self.run.until_end:
            self.platform.stop()
        self._stopped.set()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        url = f"{self.run.base_url}/readyz"
        problem: Exception | None = None
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - own address
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError) as error:
                problem = error
            has_ended = self.platform.wait(0.1) is not None
            if has_ended or time.monotonic() > deadline:
                logs = self.run.folder / "logs"
                raise CommandError(f"the platform did not become ready: {problem}; see {logs}")


# Title → the figure that has it, by the names that flows give it.
_COLUMNS = {
    "accepted": ("accepted",),
    "copies": ("copies",),
    "delivered": ("delivered",),
    "failed on purpose": ("exhausted", "failed"),
    "lost": ("lost",),
    "duplicates": ("duplicates",),
}


def _width(title: str) -> int:
    return max(12, len(title) + 3)


def table(result: Mapping[str, Any]) -> str:
    """The figures as a table, one line for each flow, followed by the problems."""
    lines = ["flow      " + "".join(f"{title:>{_width(title)}}" for title in _COLUMNS)]
    for name, figures in result["flows"].items():
        cells = (
            f"{next((figures[key] for key in keys if key in figures), '')!s:>{_width(title)}}"
            for title, keys in _COLUMNS.items()
        )
        lines.append(f"{name:<10}" + "".join(cells))
    problems = {name: figures.get("problem") for name, figures in result["flows"].items()}
    lines += [f"{name}: {problem}" for name, problem in problems.items() if problem]
    lines += [f"an error was logged: {error}" for error in result["errors"]]
    return "\n".join(lines)
