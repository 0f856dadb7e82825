"""Recover orders that RQ workers took, if somebody started any on our queues.

An RQ worker fails every order it takes (`jobs.not_for_workers`) and keeps it for a year in a
registry that no daemon reads. Nothing of such an order was delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rq import Queue
from rq.executions import ExecutionRegistry
from rq.job import Job
from rq.registry import (
    CanceledJobRegistry,
    DeferredJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
)
from rq.results import Result
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY

from msgplatform.core import logging
from msgplatform.core.connections import clock, work_redis

log = logging.get(__name__)

# Takes an order out of a registry: back to the front of its queue, or dropped. One script, so that
# two processes do not both put it back, and one that dies loses nothing. An order that a claimer
# holds is left to it: if it is in the intermediate list, `jobs.recover` sees it; an RQ worker may
# have taken it out of that list, and then it stays in the registry until the claim is over.
# KEYS: registry, queue, intermediate list, claims, job, and what goes with it. ARGV: member of the
# registry, job id, member of the claims, now, whether it goes back.
_RECOVER = """
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return '' end
local held = redis.call('LPOS', KEYS[3], ARGV[2])
local claimed = redis.call('ZSCORE', KEYS[4], ARGV[3])
if not held and claimed and tonumber(claimed) >= tonumber(ARGV[4]) then return '' end
redis.call('ZREM', KEYS[1], ARGV[1])
for i = 6, #KEYS do redis.call('DEL', KEYS[i]) end
if held then return '' end
if ARGV[5] == '1' and redis.call('HEXISTS', KEYS[5], 'data') == 1 then
  redis.call('LREM', KEYS[2], 0, ARGV[2])
  redis.call('LPUSH', KEYS[2], ARGV[2])
  redis.call('PERSIST', KEYS[5])
  return 'put back'
end
if redis.call('DEL', KEYS[5]) == 1 then return 'dropped' end
return ''
"""

# Registries of jobs that no worker is running.
_ENDED = (
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    DeferredJobRegistry,
    CanceledJobRegistry,
)


class _Entry(NamedTuple):
    queue: Queue
    registry: str  # its key
    member: bytes

    @property
    def job(self) -> str:
        """Started jobs are listed as "<job>:<execution>"; a job id holds no colon."""
        return self.member.partition(b":")[0].decode(errors="replace")


def recover(queues: Sequence[Queue], put_back: Callable[[str], bool], claims: str) -> int:
    """Empty RQ's registries of these queues, and its list of dead workers; returns how many orders.

    An order goes back to the front of its queue if `put_back(queue)`, else it is dropped. An order
    that is claimed in the sorted set `claims` is left to its claimer, and one that a worker has
    started is left to the worker until RQ itself takes it for abandoned.
    """
    _forget_dead_workers(queues)
    connection = work_redis()
    now = clock(connection)
    script = connection.register_script(_RECOVER)
    recovered = 0
    for entry in _entries(queues, now):
        name, job = entry.queue.name, entry.job
        beside = [Result.get_key(job), ExecutionRegistry(job, connection).key]
        lists = [entry.queue.key, entry.queue.intermediate_queue_key]
        became: Any = script(
            keys=[entry.registry, *lists, claims, Job.key_for(job), *beside],
            args=[entry.member, job, f"{name}|{job}", now, int(put_back(name))],
        )
        if became:
            log.warning("rq_worker_left_order", queue=name, job=job, became=became.decode())
            recovered += 1
    return recovered


def _entries(queues: Sequence[Queue], now: float) -> list[_Entry]:
    """The registries' entries that no live worker is running, in one round trip."""
    places: list[tuple[Queue, str, float | str]] = []
    for queue in queues:
        places.append((queue, StartedJobRegistry.key_template.format(queue.name), now))
        places += [(queue, kind.key_template.format(queue.name), "+inf") for kind in _ENDED]
    with work_redis().pipeline(transaction=False) as pipe:
        for _queue, key, until in places:
            pipe.zrangebyscore(key, "-inf", until)
        found: list[Any] = pipe.execute()
    return [
        _Entry(queue, key, member)
        for (queue, key, _until), members in zip(places, found, strict=True)
        for member in members
    ]


def _forget_dead_workers(queues: Sequence[Queue]) -> None:
    """Remove killed workers from RQ's lists of workers; their own keys expire."""
    connection = work_redis()
    workers: Any = list(connection.smembers(REDIS_WORKER_KEYS))
    if not workers:
        return
    log.warning("rq_workers_seen", count=len(workers))
    with connection.pipeline(transaction=False) as pipe:
        for key in workers:
            pipe.exists(key)
        alive = pipe.execute()
    dead = [key for key, exists in zip(workers, alive, strict=True) if not exists]
    if dead:
        with connection.pipeline(transaction=True) as pipe:
            pipe.srem(REDIS_WORKER_KEYS, *dead)
            for queue in queues:
                pipe.srem(WORKERS_BY_QUEUE_KEY % queue.name, *dead)
            pipe.execute()
