"""A simulated operator as a process of its own, which dies with the demo."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from demo.processes import first_line
from demo.sms.plan import Operator
from msgplatform import env
from msgplatform.core.servers import child_process


class SmgProcess:
    """`manage.py run_smg_simulator` on a free port; it connects to our receiver by itself."""

    def __init__(self, operator: Operator, folder: Path, receiver: tuple[str, int]) -> None:
        self.operator = operator
        self.log = folder / f"smg-{operator.name}.log"
        host, port = receiver
        changes = [f"--set={change}" for change in operator.changes]
        command = [
            *env.MANAGE, "run_smg_simulator",
            "--port=0", f"--behaviour={operator.behaviour}", *changes, f"--log={self.log}",
            f"--sp-host={host}", f"--sp-port={port}", f"--smg-login-name={operator.name}",
        ]  # fmt: skip
        self._output = (folder / f"smg-{operator.name}.out").open("wb")
        self._process = subprocess.Popen(  # noqa: S603 - our own command line
            child_process.command(command, "--parent", str(os.getpid())),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._output, text=True,
            process_group=0,  # Ctrl-C reaches only its starter, which closes its input
        )  # fmt: skip
        line = first_line(self._process)  # listening on host:port, log …
        if not line.startswith("listening on "):
            raise RuntimeError(f"the simulator {operator.name} did not start: {line!r}")
        self.port = int(line.split(",")[0].rpartition(":")[2])
        # The simulator prints its counts in its event loop: it would stand still at a full pipe.
        self._reader = threading.Thread(
            target=self._keep_output, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def deliver(self, mos: Sequence[tuple[str, str, str]]) -> None:
        """Users send these: (user, SP number, text)."""
        assert self._process.stdin is not None  # noqa: S101
        for user, sp_number, text in mos:
            self._process.stdin.write(f"{user}:{sp_number}:{text}\n")
        self._process.stdin.flush()

    def submitted(self) -> int:
        """Lines of its log: one for each part for each recipient."""
        return self.log.read_bytes().count(b"\n")

    def __enter__(self) -> SmgProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join()  # at the end of the output
        self._process.communicate()  # closes the pipes
        self._output.close()

    def _keep_output(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._output.write(line.encode())
