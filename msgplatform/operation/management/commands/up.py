import math
import signal
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from msgplatform.core.daemons.command import MAX_PROCESSES
from msgplatform.core.errors import PlatformError
from msgplatform.operation.supervision import address
from msgplatform.operation.supervision.platform import Platform
from msgplatform.operation.supervision.preparation import FIRST_USER, first_login_link

_SERVE_SECONDS = 60.0
_LOOK_SECONDS = 0.5  # between two looks whether an update replaces this process


class Command(BaseCommand):
    help = "Run the whole platform on this machine, supervised, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
        parser.add_argument("--port", type=address.parse_port, default=8000, help="default 8000")
        parser.add_argument("--workers", type=int, default=1, help="web processes (default 1)")
        parser.add_argument(
            "--migrate", action="store_true", help="apply migrations to a database server too"
        )
        parser.add_argument(
            "--processes",
            action="append",
            default=[],
            type=_processes,
            metavar="COMMAND=N",
            help="run N processes of a program, as in run_sender=4; may be repeated (default 1)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            platform = Platform(
                options["host"], options["port"], migrate=options["migrate"],
                workers=options["workers"], processes=dict(options["processes"]), say=_say,
            )  # fmt: skip
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves SIGHUP
                    signal.signal(number, lambda *_: platform.request_stop())
            signal.signal(signal.SIGUSR1, lambda *_: setattr(platform, "is_replaced", True))
            platform.start()
        except PlatformError as error:
            raise CommandError(str(error)) from error
        serves = platform.wait_until_it_serves(_SERVE_SECONDS)
        if not serves and not platform.is_stop_requested:
            _say(f"The web server does not answer yet; see {platform.log.parent}")
            serves = platform.wait_until_it_serves(math.inf)
        if serves:
            listens = f" · listens on {platform.host}, port {platform.port}"
            _say(
                f"The platform is on {platform.url}/{listens if settings.PUBLIC_URL_SET else ''}"
                f" · logs in {platform.log.parent} · Ctrl-C stops it, a second one kills it"
            )
            try:
                if link := first_login_link():
                    _say(
                        f"The user {FIRST_USER} has no password yet: choose one on this page. The "
                        "link is shown only here and serves once, within a day; as long as there "
                        f"is no password, each start prints a new one.\n  {platform.url}{link}"
                    )
            except DatabaseError as error:
                _say(f"The users could not be read: {error}. See: manage.py doctor")
        while (code := platform.wait(_LOOK_SECONDS)) is None:
            if platform.is_replaced and not platform.is_stop_requested:
                platform.hand_over(sys.argv[1:])
        is_requested = platform.is_stop_requested
        platform.stop()
        if not is_requested:
            raise CommandError(f"supervisord ended with code {code}; see {platform.log}")
        _say("The platform has stopped.")


def _processes(text: str) -> tuple[str, int]:
    """`run_sender=4` → ("run_sender", 4)."""
    command, _equals, number = text.partition("=")
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= MAX_PROCESSES):
        raise ArgumentTypeError(
            f"use a command and a number up to {MAX_PROCESSES}, such as run_sender=4"
        )
    return command, int(number)


def _say(text: str) -> None:
    """Print to the terminal, never to the log: the text may hold a link that logs in."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
