"""The scripts, each loaded once a process, with what they share put before them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from redis.commands.core import Script

from msgplatform.core.connections import sms_redis

_FOLDER = Path(__file__).parent / "scripts"

Argument = str | bytes | int | float


@lru_cache(maxsize=64)
def _script(name: str) -> Script:
    common = (_FOLDER / "common.lua").read_text()
    return sms_redis().register_script(common + (_FOLDER / f"{name}.lua").read_text())


def run(name: str, arguments: Sequence[Argument], keys: Sequence[str] = ()) -> Any:
    """Run `scripts/<name>.lua`; raises RedisError. Every script may be repeated."""
    return _script(name)(keys=list(keys), args=list(arguments), client=sms_redis())
