import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import PlatformError


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
        parser.add_argument("--database", choices=["mariadb", "sqlite"], default="mariadb")
        parser.add_argument(
            "--write", type=Path, metavar="FILE", help="write the results as Markdown"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["seconds"] <= 0 or options["runs"] < 1:
            raise CommandError("--seconds must be above 0 and --runs at least 1")
        # The benches are beside the platform, not part of it: an installation may lack them.
        try:
            bench: Any = import_module("bench.harness.command")
        except ModuleNotFoundError as error:
            raise CommandError(
                f"{error.name} is not installed; benches need the whole repository and "
                "the packages of `make tools`"
            ) from error
        names = bench.names() if options["all"] else options["names"]
        if problem := bench.unknown(names):
            raise CommandError(problem)
        # Like Ctrl-C, so that servers are stopped and folders removed.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        settings = bench.Options(options["seconds"], options["runs"], options["database"])
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
