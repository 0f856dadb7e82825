import signal
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.errors import PlatformError
from msgplatform.supervision.platform import Platform


class Command(BaseCommand):
    help = "Run the whole platform on this machine, supervised, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
        parser.add_argument("--port", type=int, default=8000, help="default 8000")
        parser.add_argument("--workers", type=int, default=1, help="web processes (default 1)")
        parser.add_argument(
            "--migrate", action="store_true", help="apply migrations to a database server too"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        names = ("host", "port", "workers", "migrate")
        try:
            platform = Platform(settings.STATE_DIR, **{name: options[name] for name in names})
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves SIGHUP
                    signal.signal(number, lambda *_: platform.request_stop())
            platform.start()
        except PlatformError as error:
            raise CommandError(str(error)) from error
        sys.stderr.write(
            f"The platform is on http://{options['host']}:{options['port']}/ · logs in "
            f"{platform.log.parent} · Ctrl-C stops it, a second one kills it\n"
        )
        code = platform.wait()
        asked = platform.stop_requested
        platform.stop()
        if not asked:
            raise CommandError(f"supervisord ended with code {code}; see {platform.log}")
