"""The simulated SMG as a program: for developers of SPs, demos and tests.

Lines on its standard input, `user:sp:text`, are MOs. It ends at SIGTERM and SIGINT.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import msgspec

from gateway.simulator.smg import BEHAVIOURS, Behaviour, Simulator

# Another port than SGIP's own 8801, which the platform's receiver has on the same machine.
PORT = 8802
_PRINT_SECONDS = 1.0


def parse_mo(text: str) -> tuple[str, str, str]:
    """User, SP number and text of a line `user:sp:text`. Raises ValueError for any other line."""
    # Split only at the first two colons: a text may have more.
    user, _, sp_and_text = text.rstrip("\r\n").partition(":")
    sp_number, _, content = sp_and_text.partition(":")
    if not (user.isdigit() and sp_number.isdigit() and content):
        raise ValueError("an MO is user:sp:text, with digits for user and sp")
    return user, sp_number, content


def behaviour(name: str, changes: Sequence[str]) -> Behaviour:
    """The behaviour of this name with `field=value` changes. Raises ValueError for unknown
    names."""
    if name not in BEHAVIOURS:
        raise ValueError(f"there is no behaviour {name!r}; known: {', '.join(BEHAVIOURS)}")
    field_names = Behaviour.__struct_fields__
    values: dict[str, object] = {}
    for change in changes:
        field, _, value = change.partition("=")
        if field not in field_names:
            raise ValueError(f"there is no {field!r}; known: {', '.join(sorted(field_names))}")
        values[field] = _value(getattr(Behaviour(), field), value)
    return msgspec.structs.replace(BEHAVIOURS[name], **values)


def _value(default: object, text: str) -> object:
    """A value of the type of the field's default; a number for a field whose default is None."""
    if text.lower() in ("none", ""):
        return None
    if isinstance(default, bool):
        return text.lower() in ("1", "true", "yes")
    if isinstance(default, Enum):
        for member in type(default):
            if text.lower() in (member.name.lower(), str(member.value)):
                return member
        names = ", ".join(member.name.lower() for member in type(default))
        raise ValueError(f"there is no {text!r}; known: {names}")
    return float(text) if "." in text else int(text)


async def run(
    simulator: Simulator, mos: Iterable[tuple[str, str, str]], say: Callable[[str], object]
) -> None:
    """Run until a signal; `mos` come at once. `say` gets lines for people, the first one when the
    simulator listens."""
    # `async with` closes the log and the journal in order, also after a signal.
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with simulator:
        say(f"listening on {simulator.host}:{simulator.port}, log {simulator.log}")
        for mo in mos:
            simulator.deliver(*mo)
        _read_mos(simulator, say)
        printing = loop.create_task(_print_counts(simulator, say))
        await stop.wait()
        printing.cancel()


def _read_mos(simulator: Simulator, say: Callable[[str], object]) -> None:
    """Read MOs in a thread, since standard input may be a file or nothing, which no loop awaits."""
    loop = asyncio.get_running_loop()

    def deliver(line: str) -> None:
        try:
            say(f"MO in {simulator.deliver(*parse_mo(line))} parts")
        except ValueError as error:
            say(str(error))

    def read() -> None:
        """Read without Python's buffer, whose lock a waiting thread would hold to the end."""
        tail = b""
        with contextlib.suppress(RuntimeError, OSError):  # the loop, or the input, is closed
            while data := os.read(0, 65_536):
                *lines, tail = (tail + data).split(b"\n")
                for line in lines:
                    loop.call_soon_threadsafe(deliver, line.decode("utf-8", "replace"))

    threading.Thread(target=read, name="mos", daemon=True).start()


async def _print_counts(simulator: Simulator, say: Callable[[str], object]) -> None:
    """Print the simulator's counts whenever they have changed."""
    before = ""
    while True:
        await asyncio.sleep(_PRINT_SECONDS)
        line = (
            f"connections {len(simulator.connections)}, Submits by result "
            f"{dict(simulator.accepted)}, answers {simulator.outbox.answers}, "
            f"waiting {len(simulator.outbox)}"
        )
        if line != before:
            say(line)
            before = line
