"""Libraries in C that take the place of the system's: a disk that is slow or full, a clock that
steps. A process gets one by LD_PRELOAD, so no test needs rights of its own."""

import subprocess
import sys
from pathlib import Path

_SOURCES = Path(__file__).parent


def build(name: str, folder: Path) -> Path:
    """Compile `name`.c of this folder into `folder`; the library's path."""
    library = folder / f"{name}.so"
    source = _SOURCES / f"{name}.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class Disk:
    """A disk for servers: while it is full, none of their files grows but those whose names end
    with `reserved`."""

    def __init__(self, folder: Path, reserved: str = "") -> None:
        folder.mkdir()
        self.folder = folder
        self._full = folder / "full"
        self.environment = [
            f"LD_PRELOAD={build('disk', folder)}",
            f"DISK={folder}",
            f"DISK_RESERVED={reserved}",
        ]

    def fill(self) -> None:
        self._full.touch()

    def make_room(self) -> None:
        self._full.unlink()


class MachineClock:
    """How far ahead the time of day of a machine is, for the programs with its environment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file = folder / "ahead"
        self.step(0)
        library = build("clock", folder)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write((seconds * 10**9).to_bytes(8, sys.byteorder, signed=True))
