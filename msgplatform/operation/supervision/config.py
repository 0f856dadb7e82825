"""supervisord's configuration for a list of programs, as text. This module starts nothing."""

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from msgplatform.core.errors import Permanent
from msgplatform.core.servers import child_process

_LOG_BYTES = "10MB"
_LOG_BACKUPS = 3
# supervisord must never give a program up. With startsecs 0 even a quick exit is no failed start;
# only a process that cannot be created is one.
_NEVER_GIVE_UP = 1_000_000_000
NEXT = "next-"


class Unwritable(Permanent):
    """A path that supervisord's configuration cannot express."""


class Program(msgspec.Struct, frozen=True):
    """A program with a number of processes. Lower priorities start first and stop last."""

    name: str
    argv: Sequence[str]
    priority: int
    processes: int = 1
    stop_seconds: int = 30  # time to end before the program is killed
    longest_pause: float = 5.0  # seconds between starts if the program exits at once
    comes_and_goes: bool = False  # starts and stops alone, in its own group
    # Of the platform's release: `argv` begins with its interpreter, and a second set of processes,
    # whose names begin with NEXT, waits for an update, which starts it before it stops the first.
    is_of_release: bool = False

    @property
    def group(self) -> str:
        return self.name if self.comes_and_goes else f"level-{self.priority}"


class Places:
    """Folders and files of supervisord and its programs."""

    def __init__(self, state_dir: Path, socket: Path) -> None:
        self.run, self.logs, self.socket = state_dir / "run", state_dir / "logs", socket
        self.config = self.run / "supervisord.conf"
        self.release = self.run / "release.json"  # names the release of which a program starts
        self.pace = self.run / "pace"  # a file for each process: its last starts
        self.log = self.logs / "supervisord.log"
        self.output = self.logs / "supervisord.out"  # of supervisord until it has opened its log


def render(programs: Sequence[Program], places: Places) -> str:
    """The configuration file. Raises Unwritable."""
    return "\n".join(_lines(programs, places))


def _lines(programs: Sequence[Program], places: Places) -> Iterable[str]:
    yield "; Written by `manage.py up` at every start. Look at it with:"
    yield f"; supervisorctl -s unix://{places.socket} status"
    yield "[supervisord]"
    yield "nodaemon = true"
    yield "silent = true"
    yield f"logfile = {_value(places.log)}"
    yield f"logfile_maxbytes = {_LOG_BYTES}"
    yield f"logfile_backups = {_LOG_BACKUPS}"
    yield f"pidfile = {_value(places.run / 'supervisord.pid')}"
    yield "umask = 077"
    if os.geteuid() == 0:
        yield "user = root"  # explicit, because supervisord warns otherwise
    yield ""
    yield "[unix_http_server]"
    yield f"file = {_value(places.socket)}"
    yield "chmod = 0600"
    yield ""
    yield "[rpcinterface:supervisor]"
    yield "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface"
    yield ""
    # One group for each priority: groups stop one after another, a group's programs together. A
    # program that comes and goes has a group of its own: supervisord restarts a changed group as a
    # whole.
    groups = defaultdict[tuple[int, str], list[str]](list)
    for program in programs:
        groups[program.priority, program.group] += [name for name, _ in _sets(program)]
    for (priority, group), names in sorted(groups.items()):
        yield f"[group:{group}]"
        yield f"programs = {','.join(names)}"
        yield f"priority = {priority}"
        yield ""
    for program in programs:
        for name, autostart in _sets(program):
            options = [f"--pace={places.pace}", f"--longest-pause={program.longest_pause:g}"]
            if program.is_of_release:
                options.append(f"--release={places.release}")
            argv = child_process.command(program.argv, *options)
            many = "-%(process_num)d" if program.processes > 1 else ""
            log = _value(places.logs / name)
            yield f"[program:{name}]"
            yield f"command = {_value(shlex.join(argv))}"
            yield f"process_name = %(program_name)s{many}"
            yield f"numprocs = {program.processes}"
            yield f"priority = {program.priority}"
            yield f"autostart = {autostart}"
            yield "autorestart = true"
            yield "startsecs = 0"
            yield f"startretries = {_NEVER_GIVE_UP}"
            # The first signal drains, the second kills. With true, workers would get two signals:
            # from supervisord and from their own program.
            yield "stopasgroup = false"
            yield "killasgroup = true"
            yield f"stopwaitsecs = {program.stop_seconds}"
            yield "redirect_stderr = true"
            yield f"stdout_logfile = {log}{many}.log"
            yield f"stdout_logfile_maxbytes = {_LOG_BYTES}"
            yield f"stdout_logfile_backups = {_LOG_BACKUPS}"
            yield ""


def _sets(program: Program) -> list[tuple[str, str]]:
    """The names of the program's sets of processes, with supervisord's word for: starts at once."""
    second = [(f"{NEXT}{program.name}", "false")] if program.is_of_release else []
    return [(program.name, "true"), *second]


def _value(value: object) -> str:
    """The value, if supervisord reads it unchanged. Raises Unwritable for characters that
    supervisord expands (`%`) or reads as a comment."""
    text = str(value)
    if re.search(r"[%\r\n]|\s[#;]", text):
        raise Unwritable(
            f"supervisord cannot be given {text!r}: it has a %, a line break, or a # or ; after a "
            "space. Move the project or STATE_DIR to a folder without these."
        )
    return text
