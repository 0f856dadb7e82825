"""Programs that end by themselves or hang: `up` reports how often, and why.

The records are in the work Redis, for the whole platform, and in a file in STATE_DIR, for this
machine while the work Redis does not answer.
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from django.conf import settings

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons.presence import Presence
from msgplatform.core.lazy_text import lazy_message

PERIOD_SECONDS = 60.0  # within which exits are counted
MIN_EXITS = 3  # fewer are a restart
# `up` looks at its programs every few seconds.
_TTL_SECONDS = 30.0


class Exits(msgspec.Struct, frozen=True):
    """A program's exits in the last minute; `words` are the last words in its log.

    `hung_seconds`: seconds without a sign of life until `up` killed a process; else 0.
    """

    program: str  # run_maker, web
    count: int
    words: str
    host: str = msgspec.field(default_factory=socket.gethostname)
    hung_seconds: int = 0

    @property
    def role(self) -> str:
        return self.program.removeprefix("run_")

    @property
    def subject(self) -> str:
        if self.hung_seconds:
            return lazy_message("%(program)s hung, and was ended", program=self.program)
        return lazy_message("%(program)s ends again and again", program=self.program)

    @property
    def text(self) -> str:
        if self.hung_seconds:
            return lazy_message(
                "It hung: its process was there, and gave no sign of life for %(seconds)d s. "
                "It was ended (kill -9), and is started again.",
                seconds=self.hung_seconds,
            )
        if not self.words:
            return lazy_message("It ended %(count)d times within a minute.", count=self.count)
        return lazy_message(
            "It ended %(count)d times within a minute; its last words: %(words)s",
            count=self.count, words=self.words,
        )  # fmt: skip


_exits = Presence(work_redis, "platform:exits", Exits, _TTL_SECONDS)
_decoder = msgspec.json.Decoder(list[Exits])


def report(exits: Sequence[Exits], finished_exits: Sequence[Exits]) -> None:
    """Store the programs that keep ending on this machine, and remove `finished_exits`. Raises
    RedisError, and OSError when the file could not be written."""
    path = _path()
    new_path = path.with_suffix(".part")
    try:
        new_path.write_bytes(msgspec.json.encode(exits))
        new_path.replace(path)
    finally:  # programs may end because of a full disk
        records = {_name(record): record for record in exits}
        _exits.withdraw(*({_name(record) for record in finished_exits} - records.keys()))
        _exits.report(records)


def of_platform() -> dict[str, Exits]:
    """Role → its exits, on the machine where it ends most often. Raises RedisError."""
    rows = sorted(_exits.read().values(), key=lambda row: row.count)
    return {row.role: row for row in rows}


def of_platform_or_machine() -> dict[str, Exits]:
    """Like `of_platform`; only exits on this machine while Redis does not answer."""
    with suppress(RedisError):
        return of_platform()
    with suppress(OSError, msgspec.MsgspecError):
        return {row.role: row for row in _decoder.decode(_path().read_bytes())}
    return {}


def _name(exits: Exits) -> str:
    return f"{exits.host}:{exits.program}"


def _path() -> Path:
    return Path(settings.STATE_DIR) / "run" / "exits.json"
