"""An update of the platform of one machine while it works, and the way back.

The command of the new release does it: it looks, applies the migrations of the stage *before*, and
replaces one program after another: the new process runs beside the old one until it is well. If one
is not, all programs are of the old release again, and the error says why. A killed update is
repeated, or taken back: each step begins with what runs.
"""

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xmlrpc.client import Error as RpcError, Fault

from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import migration_stages
from msgplatform.core.errors import PlatformError
from msgplatform.core.servers.logged_errors import last_words
from msgplatform.core.servers.private_server import tail
from msgplatform.doors.web import static_files
from msgplatform.operation.supervision import address, releases
from msgplatform.operation.supervision.config import NEXT
from msgplatform.operation.supervision.program_watch import os_process
from msgplatform.operation.supervision.releases import Record
from msgplatform.operation.supervision.run import Refused, supervisord_at

MAX_BACKUP_HOURS = 24
_FREE_BYTES = 1 << 30
_WELL_SECONDS = 60.0  # for a new process to start, and for two heartbeats of it
_POLL_SECONDS = 0.2
_WEB = "web"
_PROBES = 20  # requests, of which the new web server gets about half
_RUNNING = (10, 20)  # supervisord's states STARTING, RUNNING
_NO_PROCESS = (10, 70)  # supervisord's faults: the name is unknown, the process does not run


class NotWell(PlatformError):
    """A process of the new release does not work; the message says which, and why."""


class Update:
    """`say` gets a sentence for people after each step."""

    def __init__(self, run: Path, socket: Path, say: Callable[[str], None]) -> None:
        self._file, self._socket, self._say = run / "release.json", socket, say
        self._logs = run.parent / "logs"

    def go_forward(self, last_backup: float | None) -> None:
        """To the release of this command. `last_backup`: unix seconds; None: do not ask for one.
        Raises Refused before a program was changed, NotWell after all are as before."""
        record, new_release = self.record(), releases.own()
        if record.current.name == new_release.name and record.current != new_release:
            raise Refused(f"Release {new_release.name} runs already, from {record.current.folder}.")
        if last_backup is not None and time.time() - last_backup > MAX_BACKUP_HOURS * 3600:
            raise Refused(
                f"There is no backup of the last {MAX_BACKUP_HOURS} hours: make one with "
                "manage.py backup FOLDER, or say --without-backup."
            )
        size = 0
        for alias in connections:
            path = Path(str(connections[alias].settings_dict["NAME"]))
            if path.is_absolute() and path.is_file():  # SQLite, which copies a table that it alters
                size += path.stat().st_size
        if (free := shutil.disk_usage(settings.STATE_DIR).free) < (min_bytes := _FREE_BYTES + size):
            raise Refused(f"The disk of {settings.STATE_DIR} has {free >> 20} MB free, and the "
                          f"update needs {min_bytes >> 20} MB: make room.")  # fmt: skip
        names = {record.current.name, new_release.name}
        if record.previous:
            names.add(record.previous.name)
        if other_releases := sorted(heartbeats.roles_by_release(heartbeats.alive()).keys() - names):
            raise Refused(f"Programs of release {other_releases[0]} run: stop them first.")
        if not is_ready(record, 1):
            raise Refused("The platform is not ready (/readyz): repair that first.")
        if record.current != new_release:  # else an update was killed as it replaced programs
            for alias in connections:
                try:
                    call_command(
                        "migrate", database=alias, before=True, interactive=False, verbosity=0
                    )
                except Exception as error:  # a migration may raise anything
                    text = f"The migration failed, and every program is as before: {error}"
                    raise Refused(text) from error
            self._say("The migrations that come before have run.")
            static_files.collect()
            record = Record(new_release, record.current, record.address)
        self._replace(record)

    def go_back(self) -> None:
        """To the previous release; a way back that was killed, or is done, is finished. Raises
        Refused if a migration that the release does not know has taken something away, and
        NotWell."""
        record = self.record()
        if record.is_back:
            self._replace(record)
            return
        release = record.previous
        if release is None:
            raise Refused("There is no release before this one to go back to.")
        for alias in connections:
            loader = MigrationLoader(connections[alias])
            for key in loader.applied_migrations or ():
                row = (loader.disk_migrations or {}).get(key)
                if release.newest.get(key[0], "") >= key[1]:
                    continue
                if row is None and record.current.folder != str(settings.BASE_DIR):
                    # In the old release's folder. Here it is of an app that is no longer used.
                    raise Refused(
                        f"{'.'.join(key)} is unknown to this release: run the command in "
                        f"{record.current.folder}."
                    )
                if row and migration_stages.is_after(row):
                    raise Refused(
                        f"{'.'.join(key)} has run, and release {release.name} needs what it "
                        "removed. The way back is the backup (docs/backup.md)."
                    )
        self._replace(Record(release, record.current, record.address, is_back=True))

    def record(self) -> Record:
        """The release that runs. Raises Refused if no platform does."""
        record = releases.read(self._file)
        try:
            with supervisord_at(self._socket) as supervisord:
                supervisord.supervisor.getState()
        except (OSError, RpcError):
            record = None
        if record is None:
            raise Refused(
                f"No platform runs in {self._file.parent.parent}: start the new release (see "
                "docs/updating.md, With a stop), or set STATE_DIR."
            )
        return record

    # -- replacing ---------------------------------------------------------------------------------
    def _replace(self, record: Record) -> None:
        """Replace every program by one of `record.current`; take that back if one is not well."""
        old_record = self.record()
        releases.write(self._file, record)
        try:
            for names in self._programs():
                self._replace_program(names, record)
        except (NotWell, RpcError, OSError, RedisError) as error:
            release = old_record.current
            if release == record.current:  # an update that was killed, and is repeated
                if record.is_back or old_record.previous is None:
                    raise
                release = old_record.previous
            self._say(f"{error}\nGoing back to release {release.name} …")
            old_record = Record(release, record.current, record.address, not record.is_back)
            releases.write(self._file, old_record)
            for names in self._programs():
                self._replace_program(names, old_record)
            raise NotWell(
                f"{error}\nEvery program is of release {old_record.current.name} again, nothing "
                "is lost."
            ) from error
        # `up` itself is replaced last: until then it restarts the programs that end.
        pid = int((self._file.parent / "up.lock").read_text(encoding="utf-8"))
        os.kill(pid, signal.SIGUSR1)
        self._say(f"Every program is of release {record.current.name}.")

    def _programs(self) -> list[tuple[str, ...]]:
        """For each process, the names of it and of its next, the web server first."""
        with supervisord_at(self._socket) as supervisord:
            rows = supervisord.supervisor.getAllProcessInfo()
        names = {str(row["name"]): str(row["group"]) for row in rows}
        pairs = [
            (f"{group}:{name}", f"{group}:{NEXT}{name}")
            for name, group in names.items()
            if f"{NEXT}{name}" in names
        ]
        return sorted(pairs, key=lambda pair: not pair[0].endswith(f":{_WEB}"))

    def _replace_program(self, names: Sequence[str], record: Record) -> None:
        """Replace one process by one of the record's release. Raises NotWell after the new process
        was stopped; the old one goes on."""
        release = record.current.name
        running_names = [name for name in names if self._pid(name)]
        beats = {name: self._beat(self._pid(name)) for name in running_names}
        new_names = (name for name, beat in beats.items() if beat and beat.release == release)
        new_name = next(new_names, "")
        if not new_name:
            new_name = next((name for name in names if name not in running_names), names[0])
            with supervisord_at(self._socket) as supervisord:
                if new_name in running_names:  # two old ones: an update was killed as it went back
                    supervisord.supervisor.stopProcess(new_name)
                supervisord.supervisor.startProcess(new_name, False)
        is_web = names[0].endswith(f":{_WEB}")
        try:
            self._wait_until_well(new_name, release)
            if is_web and not is_ready(record, _PROBES):
                raise NotWell(f"web of release {release} does not answer as it should (/readyz).")
        except NotWell:
            self._stop(new_name)
            raise
        for name in running_names:
            if name != new_name:
                self._stop(name)
        if is_web and not is_ready(record, _PROBES):
            raise NotWell(f"web of release {release} does not answer as it should (/readyz).")
        self._say(f"{names[0].partition(':')[2]}: release {release}")

    def _wait_until_well(self, name: str, release: str) -> None:
        """Return after the second heartbeat of the process. Raises NotWell."""
        deadline, pid, beat = time.monotonic() + _WELL_SECONDS, self._pid(name), None
        program = name.partition(":")[2].removeprefix(NEXT)
        while time.monotonic() < deadline:
            if not pid or self._pid(name) != pid:
                log = self._logs / f"{name.partition(':')[2]}.log"
                raise NotWell(f"{program} of release {release} ended at its start: "
                              f"{last_words(tail(log))}")  # fmt: skip
            beat = self._beat(pid)
            if beat and beat.release != release:
                raise NotWell(f"{program} is of release {beat.release}, not of {release}.")
            is_lasting = beat is not None and beat.at - beat.since > heartbeats.INTERVAL_SECONDS - 1
            if beat and is_lasting and not beat.standstill.why:
                return
            time.sleep(_POLL_SECONDS)
        why = beat.standstill.why if beat else "it gives no sign of life"
        raise NotWell(
            f"{program} of release {release} is not well after {_WELL_SECONDS:g} s: {why}"
        )

    def _beat(self, pid: int) -> Heartbeat | None:
        """The heartbeat of the process, or of one of its workers if it is the web server."""
        host = socket.gethostname()
        beats = [beat for beat in heartbeats.alive() if beat.host == host]
        its_beats = (beat for beat in beats if pid in (beat.pid, os_process(beat.pid).parent))
        return next(its_beats, None)

    def _pid(self, name: str) -> int:
        """The pid of the running process; 0 if it does not run."""
        with supervisord_at(self._socket) as supervisord:
            try:
                row: dict[str, Any] = supervisord.supervisor.getProcessInfo(name)
            except Fault:
                return 0
        return int(row["pid"]) if row["state"] in _RUNNING else 0

    def _stop(self, name: str) -> None:
        """Stop a process in order: it finishes or gives back what it has in hand."""
        with supervisord_at(self._socket) as supervisord:
            try:
                supervisord.supervisor.stopProcess(name)
            except Fault as fault:
                if fault.faultCode not in _NO_PROCESS:
                    raise


def is_ready(record: Record, count: int) -> bool:
    """True if so many requests, each over a new connection, get 200."""
    listens, host = record.address.listens, record.address.host
    return all(address.ask(*listens, "/readyz", host) == 200 for _ in range(count))
