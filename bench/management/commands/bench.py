import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import PlatformError

SOAK = "soak"


class Command(BaseCommand):
    help = "Measure the steps of the flows, and simpler ways to do the same, on private servers."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="without a name: list them")
        parser.add_argument("--all", action="store_true", help="every bench")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object on each line"
        )
        parser.add_argument(
            "--seconds", type=float, default=10.0, help="of each measurement (default 10)"
        )
        parser.add_argument("--runs", type=int, default=3, help="the median counts (default 3)")
        parser.add_argument(
            "--against", type=lambda text: text.split(","), default=[], metavar="NAME[,NAME]",
            help="measure only beside these references (default: all of the bench)",
        )  # fmt: skip
        parser.add_argument("--database", choices=["mariadb", "mysql", "sqlite"], default="mariadb")
        parser.add_argument(
            "--write", type=Path, metavar="FILE", help="write the results as Markdown"
        )
        soak = parser.add_argument_group(
            "soak", "`bench soak` keeps all flows under open load, with a ledger, on MariaDB."
        )
        soak.add_argument("--hours", type=float, help="how long, such as 2 or 0.5")
        soak.add_argument(
            "--rate", action="append", default=[], metavar="FLOW=N",
            help="calls a second of notify, sms, crmsync, feed (default: half of what Notify and "
            "SMS do beside 200 leads and 100 posts in flight, and half of what these give)",
        )  # fmt: skip
        soak.add_argument(
            "--every", type=float, default=10.0, help="seconds between two samples (default 10)"
        )
        soak.add_argument(
            "--restart", default="", metavar="PROGRAMS",
            help="restart only these, such as web,run_sender (default: each program once)",
        )  # fmt: skip
        soak.add_argument(
            "--lose-one", action="store_true",
            help="delete a delivery before the ledger, to see that the run is void then",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if SOAK in options["names"]:
            self._soak(options)
        elif options["hours"] is not None or options["rate"]:
            raise CommandError(f"--hours and --rate are for: bench {SOAK}")
        else:
            self._measure(options)

    def _measure(self, options: dict[str, Any]) -> None:
        if options["seconds"] <= 0 or options["runs"] < 1:
            raise CommandError("--seconds must be above 0 and --runs at least 1")
        bench = self._benches("bench.harness.command")
        names = bench.names() if options["all"] else options["names"]
        if problem := bench.unknown(names):
            raise CommandError(problem)
        if problem := bench.unknown_sides(names, options["against"]):
            raise CommandError(problem)
        # Like Ctrl-C, so that servers are stopped and folders removed.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        settings = bench.Options(
            options["seconds"], options["runs"], options["database"], options["against"]
        )
        results = []
        try:
            for result in bench.run(names, settings):
                results.append(result)
                if options["json"]:
                    self.stdout.write(json.dumps(result))
                    self.stdout.flush()
        except PlatformError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(130)
        if not options["json"]:
            self.stdout.write(bench.table(results))
        if options["write"]:
            bench.write(results, options["write"])

    @staticmethod
    def _benches(module: str) -> Any:
        """A module of the benches, which are beside the platform: an installation may lack them."""
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            raise CommandError(
                f"{error.name} is not installed; benches need the whole repository and "
                "the packages of `make tools`"
            ) from error

    def _soak(self, options: dict[str, Any]) -> None:
        if options["names"] != [SOAK] or options["database"] != "mariadb" or options["all"]:
            raise CommandError(f"{SOAK} runs alone, and on MariaDB")
        if options["against"]:
            raise CommandError(f"{SOAK} has no references: leave out --against")
        if options["hours"] is None:
            raise CommandError(f"Say how long: bench {SOAK} --hours 2")
        soak = self._benches("bench.soak.command")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            result = soak.run(
                soak.Options(
                    options["hours"], soak.rates(options["rate"]), options["every"],
                    options["restart"], options["lose_one"],
                )
            )  # fmt: skip
        except PlatformError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(130)
        self.stdout.write(json.dumps(result) if options["json"] else soak.document.table(result))
        if options["write"]:
            soak.write(result, options["write"])
        if result["is_void"]:
            raise CommandError("; ".join(result["problems"]))
