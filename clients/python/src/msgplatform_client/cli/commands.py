"""The program `msgp`: its commands in one place, and how it ends."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

import typer

from . import account, apply, event_classes, events, failures, filters, listen, sms, tail
from .exits import Exit
from .session import ProfileOption

_HELP = """Publish events, send texts, and look at what becomes of them, on a msgplatform.

Begin with `msgp login`. Exit codes: 0 it is done, 1 it was refused or has failed, 2 the command is
wrong, 3 not logged in or not allowed, 4 the platform does not answer, 5 the time was over, 130
Ctrl-C.
"""

app = typer.Typer(
    name="msgp", help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False,
    rich_markup_mode="rich", context_settings={"help_option_names": ["--help", "-h"]},
)  # fmt: skip
_ACCOUNT, _MESSAGES, _PLATFORM = "Account", "Messages", "Platform"
for _name, _command, _panel in (
    ("login", account.login, _ACCOUNT),
    ("logout", account.logout, _ACCOUNT),
    ("whoami", account.whoami, _ACCOUNT),
    ("profiles", account.list_profiles, _ACCOUNT),
    ("version", account.version, _ACCOUNT),
    ("publish", events.publish, _MESSAGES),
    ("message", events.message, _MESSAGES),
    ("follow", events.follow, _MESSAGES),
    ("tail", tail.tail, _MESSAGES),
    ("listen", listen.listen, _MESSAGES),
    ("failures", failures.failures, _PLATFORM),
    ("resend", failures.resend, _PLATFORM),
    ("filter", filters.try_filter, _PLATFORM),
    ("apply", apply.apply, _PLATFORM),
    ("diff", apply.diff, _PLATFORM),
    ("export", apply.export, _PLATFORM),
    ("types", event_classes.types, _PLATFORM),
):
    app.command(_name, rich_help_panel=_panel)(_command)

app.add_typer(sms.sms, name="sms", rich_help_panel=_MESSAGES)


@app.callback()
def _program(profile: ProfileOption = "") -> None:
    if profile:  # the command that follows takes it from there, unless it has one of its own
        os.environ["MSGP_PROFILE"] = profile


def run() -> None:
    """Run the command of this process's arguments, and end the process."""
    signal.signal(signal.SIGINT, _interrupted)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a pipe of another encoding, such as cp1252, shows an escape instead.
            stream.reconfigure(errors="backslashreplace")
    # In the locale POSIX bytes that are not ASCII come as surrogates.
    sys.argv = [os.fsencode(each).decode("utf-8", "surrogateescape") for each in sys.argv]
    try:
        app(prog_name="msgp")
    except BrokenPipeError:  # such as `msgp tail | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FAILED)
    except Exception as error:
        if os.environ.get("MSGP_TRACEBACK"):
            raise
        kind = type(error).__name__
        sys.stderr.write(f"Error: an error of msgp itself ({kind}: {error}); with the variable "
                         "MSGP_TRACEBACK=1 it says where.\n")  # fmt: skip
        sys.exit(Exit.FAILED)


def _interrupted(_signal: int, _frame: FrameType | None) -> None:
    """Ctrl-C ends the process at once, without a traceback."""
    raise SystemExit(Exit.INTERRUPTED)
