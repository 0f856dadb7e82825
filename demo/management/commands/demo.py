import json
import signal
import sys
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from demo import show
from msgplatform.operation.supervision import address


class Command(BaseCommand):
    help = (
        "Start everything on this machine, send real traffic, account for every message; then let "
        "a few messages a second go on until Ctrl-C."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--exit", action="store_true", help="stop when all messages are accounted for"
        )
        parser.add_argument("--json", action="store_true", help="also print the figures as JSON")
        parser.add_argument(
            "--port", type=address.parse_port, default=0, help="default: 8000, or a free one"
        )
        parser.add_argument(
            "--messages", type=int, default=10_000, help="messages of each flow (default 10000)"
        )
        parser.add_argument(
            "--timeout", type=float, default=300, help="seconds for delivery (default 300)"
        )
        parser.add_argument(
            "--database", default="", metavar="URL",
            help="mysql://… of an empty database (default: SQLite, whatever DATABASE_URL says)",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        show.enter(options["port"], options["database"])
        stop = threading.Event()
        waiting = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: _interrupt(stop, waiting))
        demo = show.Demo(options["messages"], options["timeout"])
        try:
            demo.start()
            result = demo.account()
            sys.stderr.write(show.table(result) + "\n")
            if options["json"]:
                self.stdout.write(json.dumps(result))
            if not options["exit"]:
                sys.stderr.write(
                    f"\n  console   {demo.run.base_url}/\n"
                    f"  user      {show.ADMIN}\n"
                    f"  password  {demo.password}\n"
                    f"  API docs  {demo.run.base_url}/api/docs/\n"
                    f"  metrics   {demo.run.base_url}/metrics\n\n"
                    "A few messages a second go on through every flow. Whatever fails here, fails "
                    "on purpose and says so.\nCtrl-C stops everything.\n"
                )
                demo.go_on()
                waiting.set()
                stop.wait()
        except KeyboardInterrupt:
            demo.run.say("interrupted; stopping …")
            sys.exit(130)
        finally:
            demo.stop()
        if not result["ok"]:
            raise CommandError(
                "messages are unaccounted for, too few were sent, or programs logged errors"
            )


def _interrupt(stop: threading.Event, waiting: threading.Event) -> None:
    """The first signal ends the waiting, or interrupts the work; later ones change nothing."""
    if stop.is_set():
        return
    stop.set()
    if not waiting.is_set():
        raise KeyboardInterrupt
