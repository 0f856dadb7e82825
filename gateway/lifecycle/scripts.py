"""The scripts, each loaded once a process, with their common part before them.

With SMS_REPLICAS a script that takes something in, or that allows a Submit to be written, is run by
`run_replicated`: script and WAIT in one pipeline, since WAIT counts the writes of its connection.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from gateway.connections import SMS, sms_redis
from msgplatform.core.connections import LOST, RedisError, refusal
from msgplatform.core.errors import OutcomeUnknown, Unavailable

_FOLDER = Path(__file__).parent / "scripts"
# A Redis that is full (maxmemory) refuses a script's first write, unless that write can only free
# memory. So scripts that take in messages are refused, and the others, which free memory, are not.
_TAKE_IN = frozenset({"accept", "mo", "mo_keep", "keep"})
# A key that never exists: deleting it changes nothing.
_GOES_ON = "redis.call('DEL', P .. 'none')\n"
# A repeated script finds its work done and writes nothing, and WAIT would not wait for the writes
# of an earlier connection. So every script before a WAIT writes something.
_MARK = "redis.call('SET', P .. 'replicated-at', STAMP)\n"
REPLICA_SECONDS = 1.0

Argument = str | bytes | int | float


@lru_cache(maxsize=64)
def _script(name: str, is_marked: bool = False) -> Script:
    common = (_FOLDER / "common.lua").read_text(encoding="utf-8")
    start = common if name in _TAKE_IN else common + _GOES_ON
    text = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    return sms_redis().register_script(start + (_MARK if is_marked else "") + text)


def run(name: str, arguments: Sequence[Argument], keys: Sequence[str] = ()) -> Any:
    """Run `scripts/<name>.lua`; raises RedisError. Every script may be repeated."""
    return _script(name)(keys=list(keys), args=list(arguments), client=sms_redis())


def run_replicated(name: str, arguments: Sequence[Argument], keys: Sequence[str] = ()) -> Any:
    """Do `run`; when it returns, SMS_REPLICAS replicas have all that was written until then.

    Raises Unavailable when the server refused the script before it wrote anything, OutcomeUnknown
    when fewer replicas have it after REPLICA_SECONDS, and RedisError: the outcome is unknown, too.
    """
    try:
        return _attempt(name, arguments, keys)
    except LOST as error:
        lost = error
    try:
        return _attempt(name, arguments, keys)
    except Unavailable as error:
        raise lost from error  # the first attempt may have been carried out


def _attempt(name: str, arguments: Sequence[Argument], keys: Sequence[str]) -> Any:
    replicas: int = settings.SMS_REPLICAS
    client, script = SMS.single_try_client(), _script(name, replicas > 0)
    try:
        answer = _execute(client, script, arguments, keys, replicas)
        if isinstance(answer[0], NoScriptError):  # a server that was restarted, or has taken over
            client.script_load(script.script)
            answer = _execute(client, script, arguments, keys, replicas)
        result, *counts = answer
        if isinstance(result, RedisError):
            raise result
    except RedisError as error:
        if code := refusal(error):
            if code == "READONLY":  # over a new connection the address may lead to the new master
                client.connection_pool.disconnect(inuse_connections=False)
            raise Unavailable(
                f"The SMS Redis takes no writes at present ({code}); nothing was stored. "
                "Repeat the request later."
            ) from error
        raise
    # A master that becomes a replica meanwhile answers WAIT with an error.
    count = counts[0] if counts and isinstance(counts[0], int) else 0
    if count < replicas:
        raise OutcomeUnknown(
            f"{count} replicas of the SMS Redis have it after {REPLICA_SECONDS:g} s, and "
            f"SMS_REPLICAS is {replicas}: see that its replicas run, or lower SMS_REPLICAS"
        )
    return result


def _execute(
    client: redis.Redis,
    script: Script,
    arguments: Sequence[Argument],
    keys: Sequence[str],
    replicas: int,
) -> list[Any]:
    with client.pipeline(transaction=False) as pipe:
        pipe.evalsha(script.sha, len(keys), *keys, *arguments)
        if replicas:
            pipe.wait(replicas, int(REPLICA_SECONDS * 1000))
        # The pipeline's error quotes the arguments, which are personal data.
        return pipe.execute(raise_on_error=False)
