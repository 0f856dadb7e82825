"""supervisord's configuration for a list of programs. Only text, nothing is started here."""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgplatform.core.errors import Permanent
from msgplatform.core.servers import child_process

_LOG_BYTES = "10MB"
_LOG_BACKUPS = 3
# supervisord must never give a program up. With startsecs 0 no exit counts as a failed start,
# however quick; only a process that could not be made at all does.
_NEVER_GIVE_UP = 1_000_000_000


class Unwritable(Permanent):
    """A path that supervisord's configuration cannot express."""


@dataclass(frozen=True)
class Program:
    """One program, `processes` times. Lower priorities start first and stop last."""

    name: str
    argv: Sequence[str]
    priority: int
    processes: int = 1
    stop_seconds: int = 30  # how long it may take to end before it is killed
    longest_pause: float = 5.0  # seconds between two starts when it keeps exiting at once
    comes_and_goes: bool = False  # starts and stops while others of its priority run

    @property
    def group(self) -> str:
        return self.name if self.comes_and_goes else f"level-{self.priority}"


@dataclass(frozen=True)
class Places:
    """Folders and files of supervisord and its programs."""

    run: Path
    logs: Path
    socket: Path

    @property
    def config(self) -> Path:
        return self.run / "supervisord.conf"

    @property
    def pace(self) -> Path:
        """The folder with the records of the last starts, one file for each process."""
        return self.run / "pace"

    @property
    def log(self) -> Path:
        return self.logs / "supervisord.log"

    @property
    def output(self) -> Path:
        """The file for supervisord's output until it has opened its log."""
        return self.logs / "supervisord.out"


def render(programs: Sequence[Program], places: Places) -> str:
    """The configuration file. Raises Unwritable."""
    return "\n".join([*_supervisord(places), *_groups(programs), *_programs(programs, places)])


def _supervisord(places: Places) -> Iterable[str]:
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
        yield "user = root"  # explicitly: otherwise it warns about it
    yield ""
    yield "[unix_http_server]"
    yield f"file = {_value(places.socket)}"
    yield "chmod = 0600"
    yield ""
    yield "[rpcinterface:supervisor]"
    yield "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface"
    yield ""


def _groups(programs: Sequence[Program]) -> Iterable[str]:
    """One group for each priority: groups stop one after another, the programs of a group together.

    A program that comes and goes has a group of its own: supervisord restarts a changed group as a
    whole.
    """
    groups = defaultdict(list)
    for program in programs:
        groups[program.priority, program.group].append(program.name)
    for (priority, group), names in sorted(groups.items()):
        yield f"[group:{group}]"
        yield f"programs = {','.join(names)}"
        yield f"priority = {priority}"
        yield ""


def _programs(programs: Sequence[Program], places: Places) -> Iterable[str]:
    for program in programs:
        pause = f"--longest-pause={program.longest_pause:g}"
        argv = child_process.command(program.argv, f"--pace={places.pace}", pause)
        many = "-%(process_num)d" if program.processes > 1 else ""
        log = _value(places.logs / program.name)
        yield f"[program:{program.name}]"
        yield f"command = {_value(shlex.join(argv))}"
        yield f"process_name = %(program_name)s{many}"
        yield f"numprocs = {program.processes}"
        yield f"priority = {program.priority}"
        yield "autostart = true"
        yield "autorestart = true"
        yield "startsecs = 0"
        yield f"startretries = {_NEVER_GIVE_UP}"
        # The first signal drains and the second kills. Sent to the whole process group, the workers
        # of a program that signals them itself would get two.
        yield "stopasgroup = false"
        yield "killasgroup = true"
        yield f"stopwaitsecs = {program.stop_seconds}"
        yield "redirect_stderr = true"
        yield f"stdout_logfile = {log}{many}.log"
        yield f"stdout_logfile_maxbytes = {_LOG_BYTES}"
        yield f"stdout_logfile_backups = {_LOG_BACKUPS}"
        yield ""


def _value(value: object) -> str:
    """A value that supervisord reads unchanged: it expands `%`, in some values twice, and cuts
    comments off. Raises Unwritable."""
    text = str(value)
    if re.search(r"[%\r\n]|\s[#;]", text):
        raise Unwritable(
            f"supervisord cannot be given {text!r}: it has a %, a line break, or a # or ; after a "
            "space. Move the project or STATE_DIR to a folder without these."
        )
    return text
