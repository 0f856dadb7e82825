"""The scripts, each loaded once a process, with their common part before them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from redis.commands.core import Script

from gateway.connections import sms_redis

_FOLDER = Path(__file__).parent / "scripts"
# A Redis that is full (maxmemory) refuses a script's first write, unless that can only free memory.
# Scripts that take in messages are refused then; the others go on, for they free memory.
_TAKE_IN = frozenset({"accept", "mo", "mo_keep", "keep"})
# A key that never exists: to delete it changes nothing.
_GOES_ON = "redis.call('DEL', P .. 'none')\n"

Argument = str | bytes | int | float


@lru_cache(maxsize=64)
def _script(name: str) -> Script:
    common = (_FOLDER / "common.lua").read_text()
    start = common if name in _TAKE_IN else common + _GOES_ON
    return sms_redis().register_script(start + (_FOLDER / f"{name}.lua").read_text())


def run(name: str, arguments: Sequence[Argument], keys: Sequence[str] = ()) -> Any:
    """Run `scripts/<name>.lua`; raises RedisError. Every script may be repeated."""
    return _script(name)(keys=list(keys), args=list(arguments), client=sms_redis())
