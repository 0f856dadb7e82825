from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from msgplatform import env
from msgplatform.core.daemons.command import DaemonCommand
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from notify.agent.client import IntakeClient
from notify.agent.relay import MAX_BATCH, TIMEOUT_SECONDS, Figures, Relay
from notify.agent.store import Store, add_database


class Command(DaemonCommand):
    help = (
        "Relays the outbox of a business system to Notify's intake. It needs neither the "
        "platform's database nor its Redis: run it next to the business system."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--database",
            help="the business system's database, mysql://… or sqlite:////path; "
            "better given as AGENT_DATABASE_URL, since it may hold a password",
        )
        parser.add_argument(
            "--intake", help="where the platform is (default AGENT_INTAKE_URL, else PUBLIC_URL)"
        )
        parser.add_argument(
            "--key-file",
            type=Path,
            help="file with the API key, scope events:write (default AGENT_API_KEY)",
        )
        parser.add_argument("--batch", type=int, default=500, help="rows at a time (default 500)")
        parser.add_argument("--name", default="", help="name in heartbeats (default the host's)")
        parser.add_argument("--metrics", default="", help="HOST:PORT that answers Prometheus")

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Check only the settings of an Agent: it needs neither SECRET_KEY nor the platform's
        servers."""
        if env.problems:
            problem = env.problems[0]
            raise CommandError(f"{problem.message}. {problem.hint}")

    def worker(self, **options: Any) -> Relay:
        if not 1 <= options["batch"] <= MAX_BATCH:
            raise CommandError(f"--batch must be from 1 to {MAX_BATCH}")
        # The business system's database, in which the outbox is.
        # By default: none, required
        database = options["database"] or env.secret("AGENT_DATABASE_URL")
        # A key with the scope `events:write`.
        # By default: none, required
        env_key = env.secret("AGENT_API_KEY")
        self.check()  # again: these two may name files that cannot be read
        # The platform's address.
        # By default: PUBLIC_URL
        intake = options["intake"] or env.text("AGENT_INTAKE_URL", settings.PUBLIC_URL)
        # `HOST:PORT` that answers Prometheus.
        # By default: none
        metrics = options["metrics"] or env.text("AGENT_METRICS")
        key = key_source(options["key_file"], env_key)
        try:
            destinations.parse(intake)
        except InvalidInput as error:
            raise CommandError(f"--intake or AGENT_INTAKE_URL: {error}") from None
        if not database:
            raise CommandError(
                "--database or AGENT_DATABASE_URL: name the business system's database"
            )
        try:
            store = Store(add_database(database))
        except InvalidInput as error:
            raise CommandError(f"--database or AGENT_DATABASE_URL: {error}") from None
        figures = Figures()
        if metrics:
            host, _, port = metrics.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise CommandError(
                    "--metrics or AGENT_METRICS: use HOST:PORT, such as 127.0.0.1:9464"
                )
            try:
                figures.serve(host.strip("[]"), int(port))
            except OSError as error:
                # The port may be taken by a second Agent with the same options.
                why = f"{metrics} cannot be used: {error.strerror}"
                raise CommandError(f"--metrics or AGENT_METRICS: {why}") from None
        client = IntakeClient(intake, key, TIMEOUT_SECONDS)
        return Relay(store, client, options["batch"], options["name"], figures)


def key_source(path: Path | None, key: str) -> Callable[[], str]:
    """The function that returns the API key. It reads a file for each request, so that a key can be
    replaced. Raises CommandError when there is none."""
    if path is None:
        if not key:
            raise CommandError("--key-file: no API key: name a file, or set AGENT_API_KEY")
        return lambda: key
    read = partial(path.read_text, encoding="utf-8-sig")
    try:
        if not read().strip():
            raise CommandError(f"--key-file: {path} is empty")
    except (OSError, UnicodeDecodeError):
        text = f"--key-file: {path} is not a text file that this user can read"
        raise CommandError(text) from None
    return lambda: read().strip()
