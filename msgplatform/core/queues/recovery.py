"""Recover orders that killed processes left in intermediate lists, and those that RQ workers took.

If somebody starts an RQ worker on our queues, it fails every order it takes
(`jobs.not_for_workers`) and keeps it for a year in a registry that no daemon reads. Nothing of such
an order was delivered.
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
from msgplatform.core.data.chunks import chunks
from msgplatform.core.queues.jobs import CLAIMS, Serializer, forget

log = logging.get(__name__)

RQ_QUEUES = "rq:queues"  # RQ's set of all queues that ever had a job
# A claim that ended this long ago has no order any more: `recover` would have taken the order.
_STALE_SECONDS = 30

# Takes an order out of a registry: back to the front of its queue, or dropped. One script, so that
# two processes do not both put it back, and one that dies loses nothing. An order that a claimer
# holds is left to it: if it is in the intermediate list, `recover` sees it there; an RQ worker may
# have taken it out of that list, and then it stays in the registry until the claim is over.
# KEYS: registry, queue, intermediate list, claims, job, and what goes with it. ARGV: member of the
# registry, job id, member of the claims, now, whether it goes back.
_RECOVER = """
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return '' end
redis.call('DEL', KEYS[4] .. ':none')  -- as in _PUT_BACK
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

# Forgets the names of queues that have nothing at all, and returns the indices of the others. `put`
# adds a name again together with its entry, and this is one script: no queue with work is missed.
# KEYS: RQ's set of queues, then for each its lists and registries. ARGV: members of the set.
_WITH_ENTRIES = """
local others, each = {}, (#KEYS - 1) / #ARGV
for i = 1, #ARGV do
  local keys = {}
  for k = 1, each do keys[k] = KEYS[1 + (i - 1) * each + k] end
  if redis.call('EXISTS', unpack(keys)) > 0 then
    others[#others + 1] = i
  else
    redis.call('SREM', KEYS[1], ARGV[i])
  end
end
return others
"""
_NAMES_A_SCRIPT = 500

# An entry goes back to the front of its queue. KEYS: queue, intermediate list, claims. ARGV: job
# id, member of the claims.
_PUT_BACK = """
redis.call('ZREM', KEYS[3], ARGV[2])  -- a full Redis lets a script go on that began by freeing
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 1 then redis.call('LPUSH', KEYS[1], ARGV[1]) end
"""

# An entry without a claim is given one. KEYS: claims. ARGV: member, until.
_GRACE = """
redis.call('DEL', KEYS[1] .. ':none')  -- as in _PUT_BACK
redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
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


def recover(put_back: Callable[[str], bool], grace: float = 60.0) -> int:
    """Recover the orders that killed processes left in intermediate lists, and those that RQ
    workers, if somebody started any, left in RQ's registries; returns how many.

    `put_back(queue)` says whether an order is the only copy of something (then it goes back to
    the front of its queue) or can be made again (then it is dropped). An entry without a claim is
    given one of `grace` seconds first.
    """
    connection = work_redis()
    queues = _with_entries(connection)
    order_count = _recover_registries(queues, put_back)
    for queue in queues:
        if not put_back(queue.name):
            order_count += _drop_expired(queue, connection)
        order_count += _recover_claimed(queue, put_back(queue.name), grace)
    # Claims whose order is long gone: its process died between the steps of `done()`.
    connection.zremrangebyscore(CLAIMS, "-inf", clock(connection) - _STALE_SECONDS)
    return order_count


def _with_entries(connection: Any) -> list[Queue]:
    """Queues in which something waits, is claimed, or was left by an RQ worker: a few scripts,
    however many queues there once were."""
    every = Queue.all(connection=connection, serializer=Serializer)
    script = connection.register_script(_WITH_ENTRIES)
    kinds = (StartedJobRegistry, *_ENDED)
    busy_queues: list[Queue] = []
    for some in chunks(every, _NAMES_A_SCRIPT):
        keys = [RQ_QUEUES]
        for queue in some:
            keys += [queue.key, queue.intermediate_queue_key]
            keys += [kind.key_template.format(queue.name) for kind in kinds]
        others: Any = script(keys=keys, args=[queue.key for queue in some])
        busy_queues += [some[index - 1] for index in others]
    return busy_queues


def _recover_claimed(queue: Queue, is_only_copy: bool, grace: float) -> int:
    """Entries of the intermediate list whose claim is over; how many."""
    connection = work_redis()
    job_ids = queue.intermediate_queue.get_job_ids()
    if not job_ids:
        return 0
    members = [f"{queue.name}|{job_id}" for job_id in job_ids]
    now, order_count = clock(connection), 0
    claims: Any = connection.zmscore(CLAIMS, members)
    for job_id, member, until in zip(job_ids, members, claims, strict=True):
        if until is None:
            connection.register_script(_GRACE)(keys=[CLAIMS], args=[member, now + grace])
        elif float(until) < now:
            _recover_one(queue, job_id, is_only_copy)
            order_count += 1
    return order_count


def _drop_expired(queue: Queue, connection: Any) -> int:
    """Entries whose order's ttl is over: a queue that nobody drains would grow for ever."""
    order_count = 0
    for key in (queue.key, queue.intermediate_queue_key):
        entries: Any = connection.lrange(key, 0, -1)
        with connection.pipeline(transaction=False) as pipe:
            for job_id in entries:
                pipe.exists(Job.key_for(job_id.decode()))
            answers = pipe.execute()
        for job_id in (entry for entry, exists in zip(entries, answers, strict=True) if not exists):
            order_count += int(connection.lrem(key, 1, job_id))
    return order_count


def _recover_one(queue: Queue, job_id: str, is_only_copy: bool) -> None:
    log.warning("order_recovered", queue=queue.name, job=job_id, put_back=is_only_copy)
    if is_only_copy:
        script = work_redis().register_script(_PUT_BACK)
        lists = [queue.key, queue.intermediate_queue_key]
        script(keys=[*lists, CLAIMS], args=[job_id, f"{queue.name}|{job_id}"])
        return
    with work_redis().pipeline(transaction=True) as pipe:
        forget(pipe, queue.name, job_id)
        pipe.execute()


def _recover_registries(queues: Sequence[Queue], put_back: Callable[[str], bool]) -> int:
    """Empty RQ's registries of these queues, and its list of dead workers; returns how many orders.

    A claimed order is left to its claimer, and one that a worker has started is left to the worker
    until RQ itself takes it for abandoned.
    """
    _forget_dead_workers(queues)
    connection = work_redis()
    now = clock(connection)
    script = connection.register_script(_RECOVER)
    order_count = 0
    for entry in _entries(queues, now):
        name, job = entry.queue.name, entry.job
        job_keys = [Result.get_key(job), ExecutionRegistry(job, connection).key]
        lists = [entry.queue.key, entry.queue.intermediate_queue_key]
        became: Any = script(
            keys=[entry.registry, *lists, CLAIMS, Job.key_for(job), *job_keys],
            args=[entry.member, job, f"{name}|{job}", now, int(put_back(name))],
        )
        if became:
            log.warning("rq_worker_left_order", queue=name, job=job, became=became.decode())
            order_count += 1
    return order_count


def _entries(queues: Sequence[Queue], now: float) -> list[_Entry]:
    """The registries' entries that no live worker is running, in one round trip."""
    places: list[tuple[Queue, str, float | str]] = []
    for queue in queues:
        places.append((queue, StartedJobRegistry.key_template.format(queue.name), now))
        places += [(queue, kind.key_template.format(queue.name), "+inf") for kind in _ENDED]
    with work_redis().pipeline(transaction=False) as pipe:
        for _queue, key, until in places:
            pipe.zrangebyscore(key, "-inf", until)
        member_lists: list[Any] = pipe.execute()
    return [
        _Entry(queue, key, member)
        for (queue, key, _until), members in zip(places, member_lists, strict=True)
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
