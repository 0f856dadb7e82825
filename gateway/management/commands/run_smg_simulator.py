import asyncio
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.net import Login
from gateway.simulator.program import PORT, behaviour, parse_mo, run
from gateway.simulator.smg import BEHAVIOURS, Simulator


class Command(BaseCommand):
    help = "A simulated operator's gateway (SMG): takes Submits, sends Reports and MOs."
    requires_system_checks = []  # it needs neither a database nor Redis

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--host", default="127.0.0.1", help="where it listens (default 127.0.0.1)")
        add("--port", type=int, default=PORT, help=f"0: a free one (default {PORT})")
        add("--behaviour", default="happy", help=f"one of {', '.join(BEHAVIOURS)}")
        add(
            "--set", action="append", default=[], metavar="FIELD=VALUE", dest="changes",
            help="change the behaviour, such as response_delay=0.2; may be repeated",
        )  # fmt: skip
        add("--log", type=Path, help="what it accepted (default: in STATE_DIR)")
        add("--login-name", default="sp", help="with which an SP binds (default sp)")
        add("--login-password", default="secret", help="default secret")
        add("--sp-host", default="127.0.0.1", help="where the SP takes Reports and MOs")
        add("--sp-port", type=int, help="without it they go over the SP's own connections")
        add("--smg-login-name", default="smg", help="with which it binds to the SP (default smg)")
        add("--smg-login-password", default="secret", help="default secret")
        add(
            "--mo", action="append", default=[], metavar="USER:SP:TEXT",
            help="send this MO at once; may be repeated. Lines on standard input are MOs, too",
        )  # fmt: skip
        add("--journal", type=Path, help="where it keeps Reports and MOs until they are answered")

    def handle(self, *args: Any, **arguments: Any) -> None:
        receiver = arguments["sp_host"], arguments["sp_port"]
        try:
            mos = [parse_mo(mo) for mo in arguments["mo"]]
            simulator = Simulator(
                arguments["log"] or settings.STATE_DIR / "smg-simulator.log",
                behaviour(arguments["behaviour"], arguments["changes"]),
                host=arguments["host"],
                port=arguments["port"],
                listener=receiver if arguments["sp_port"] else None,
                login=Login(arguments["login_name"], arguments["login_password"]),
                smg_login=Login(arguments["smg_login_name"], arguments["smg_login_password"]),
                journal=arguments["journal"],
            )
            asyncio.run(run(simulator, mos, self._say))
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from None

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()  # the demo and tests wait for the first line
