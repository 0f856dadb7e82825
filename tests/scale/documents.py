"""The commands of docs/scale.md and docs/cells.md, and machines on which they run as written."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from tests.cluster import ROOT

DOCUMENTS = [ROOT / "docs" / name for name in ("scale.md", "cells.md")]
_PART = re.compile(
    r"^(?:#+ (?P<heading>[^\n]+)|(?P<indent> *)```sh\n(?P<block>.*?)^(?P=indent)```)$", re.M | re.S
)
# A machine of its own has them; this one only writes down that they were called.
_CALLS = ("apt-get", "systemctl", "nginx", "sysctl")
# Without root's rights nothing is given to another user.
_OWNERS = {
    "chown": "exit 0",
    "install": 'for word; do case $word in /*) mkdir -p "$word";; esac; done',
}
# Folders that packages have made.
_FOLDERS = (
    "etc/default", "etc/mysql/mariadb.conf.d", "etc/haproxy", "etc/keepalived", "etc/redis",
    "etc/nginx/conf.d", "etc/sysctl.d", "var/lib/redis",
)  # fmt: skip
_SECONDS = 300


def blocks() -> dict[str, list[str]]:
    """Heading → the blocks of shell commands below it, in their order."""
    text = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    heading, below = "", dict[str, list[str]]()
    for match in _PART.finditer(text):
        if match["heading"]:
            heading = match["heading"]
        else:
            below.setdefault(heading, []).append(dedent(match["block"]))
    return below


class Machine:
    """A private root: /etc and /var/lib of the commands are folders in it."""

    def __init__(self, root: Path) -> None:
        self.root, self._calls = root, root / "calls"
        for folder in (*_FOLDERS, "bin"):
            (root / folder).mkdir(parents=True)
        shims = dict.fromkeys(_CALLS, f'echo "${{0##*/}} $*" >>{self._calls}')
        for name, script in (shims if os.geteuid() == 0 else shims | _OWNERS).items():
            (root / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (root / "bin" / name).chmod(0o755)

    def file(self, path: str) -> Path:
        """A file of this machine, named as in the document."""
        return self.root / path.lstrip("/")

    def own(self, text: str) -> str:
        """The text with this machine's folders."""
        return re.sub(r"(?<![\w.])/(?=(etc|var/lib|run)/)", f"{self.root}/", text)

    def run(self, block: str, environment: Mapping[str, str] | None = None) -> str:
        """What the commands print; one that fails ends them, and the test."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.own(block)], cwd=ROOT, check=False, text=True,
            env={**os.environ, **(environment or {}), "PATH": path}, timeout=_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}"
        return done.stdout

    def calls(self) -> list[str]:
        """What was called of the system, in its order, since the last time."""
        lines = self._calls.read_text().splitlines()
        self._calls.unlink()
        return lines
