"""Recovery of orders that a killed process had claimed, or that an RQ worker took.

A claimed order lies in the intermediate list of its queue. An RQ worker that somebody starts on our
queues fails each order (`jobs.not_for_workers`): the order is not delivered, and RQ keeps it for a
year in a registry that no daemon reads.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rq import Queue, registry
from rq.executions import ExecutionRegistry
from rq.job import Job
from rq.results import Result
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY

from msgplatform.core import logging
from msgplatform.core.connections import clock, work_redis
from msgplatform.core.data import chunks
from msgplatform.core.queues.jobs import CLAIMS, QUEUES, Serializer, remove_order

log = logging.get(__name__)

# A claim that ended so many seconds ago has no order: `recover` has recovered the order by then.
_STALE_SECONDS = 30

# Takes an order out of a registry, and puts it back at the front of its queue or drops it. One
# script, so that two processes cannot both put an order back, and a killed process loses no order.
# The script skips a claimed order, because `recover` reads it from the intermediate list. If an RQ
# worker removed the order from that list, the order stays in the registry until its claim ends.
# KEYS: registry, queue, intermediate list, claims, job, other keys of the job. ARGV: member of the
# registry, job id, member of the claims, now, '1' to put the order back.
_RECOVER_FROM_REGISTRY = """
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return '' end
redis.call('DEL', KEYS[4] .. ':none')  -- lets a full Redis run the script: see _PUT_BACK
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

# Removes empty queues from RQ's set of queues, and returns the indices of the others. The script
# misses no queue with orders, because `put` adds the queue's name and the order in one step. KEYS:
# RQ's set of queues, then the lists and registries of each queue. ARGV: members of the set.
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
_QUEUES_PER_SCRIPT = 500

# Moves an entry back to the front of its queue, unless a process has claimed it again. KEYS: queue,
# intermediate list, claims. ARGV: job id, member of the claims, now.
_PUT_BACK = """
redis.call('DEL', KEYS[3] .. ':none')  -- a script that begins by a DEL may write to a full Redis
local claimed = redis.call('ZSCORE', KEYS[3], ARGV[2])
if claimed and tonumber(claimed) >= tonumber(ARGV[3]) then return end
redis.call('ZREM', KEYS[3], ARGV[2])
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 1 then redis.call('LPUSH', KEYS[1], ARGV[1]) end
"""

# Gives an entry without a claim one. KEYS: claims. ARGV: member, until.
_ADD_CLAIM = """
redis.call('DEL', KEYS[1] .. ':none')  -- lets a full Redis run the script: see _PUT_BACK
redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
"""

# Registries of jobs that are not running.
_ENDED_REGISTRIES = (
    registry.FailedJobRegistry, registry.FinishedJobRegistry, registry.ScheduledJobRegistry,
    registry.DeferredJobRegistry, registry.CanceledJobRegistry,
)  # fmt: skip


def recover(is_only_copy: Callable[[str], bool], grace: float = 60.0) -> int:
    """Recover orders whose claim has ended or that are in RQ's registries; drop expired orders.

    `is_only_copy(queue)` is true if the queue's orders are the only copy of their data: such an
    order goes back to the front of its queue. Other orders are dropped, because the database has
    their data. An entry without a claim first gets a claim of `grace` seconds. Returns the number
    of recovered and dropped orders.
    """
    connection = work_redis()
    queues = _queues_with_entries(connection)
    order_count = _recover_registries(queues, is_only_copy)
    for queues_of_script in chunks(queues, _QUEUES_PER_SCRIPT):
        order_count += _drop_expired(
            [queue for queue in queues_of_script if not is_only_copy(queue.name)]
        )
        order_count += _recover_claimed(queues_of_script, is_only_copy, grace)
    # Claims without an order: their process died between the steps of `remove_orders`.
    connection.zremrangebyscore(CLAIMS, "-inf", clock(connection) - _STALE_SECONDS)
    return order_count


def _queues_with_entries(connection: Any) -> list[Queue]:
    """Queues with an entry in a list or a registry, found by one script for every
    _QUEUES_PER_SCRIPT queues that RQ knows."""
    all_queues = Queue.all(connection=connection, serializer=Serializer)
    script = connection.register_script(_WITH_ENTRIES)
    kinds = (registry.StartedJobRegistry, *_ENDED_REGISTRIES)
    busy_queues: list[Queue] = []
    for chunk in chunks(all_queues, _QUEUES_PER_SCRIPT):
        keys = [QUEUES]
        for queue in chunk:
            keys += [queue.key, queue.intermediate_queue_key]
            keys += [kind.key_template.format(queue.name) for kind in kinds]
        busy_indices: Any = script(keys=keys, args=[queue.key for queue in chunk])  # from 1 on
        busy_queues += [chunk[index - 1] for index in busy_indices]
    return busy_queues


def _recover_claimed(
    queues: Sequence[Queue], is_only_copy: Callable[[str], bool], grace: float
) -> int:
    """Recover the entries of intermediate lists whose claim has ended; returns their number."""
    connection = work_redis()
    lists = _entries([queue.intermediate_queue_key for queue in queues])
    claimed_entries = [
        (queue, job_id.decode())
        for queue, job_ids in zip(queues, lists, strict=True)
        for job_id in job_ids
    ]
    if not claimed_entries:
        return 0
    members = [f"{queue.name}|{job_id}" for queue, job_id in claimed_entries]
    now, order_count = clock(connection), 0
    claim_ends: Any = connection.zmscore(CLAIMS, members)
    for (queue, job_id), member, end in zip(claimed_entries, members, claim_ends, strict=True):
        if end is None:
            connection.register_script(_ADD_CLAIM)(keys=[CLAIMS], args=[member, now + grace])
        elif float(end) < now:
            is_put_back = is_only_copy(queue.name)
            log.warning("order_recovered", queue=queue.name, job=job_id, put_back=is_put_back)
            if is_put_back:
                connection.register_script(_PUT_BACK)(
                    keys=[queue.key, queue.intermediate_queue_key, CLAIMS],
                    args=[job_id, member, now],
                )
            else:
                with connection.pipeline(transaction=True) as pipe:
                    remove_order(pipe, queue.name, job_id)
                    pipe.execute()
            order_count += 1
    return order_count


def _drop_expired(queues: Sequence[Queue]) -> int:
    """Remove entries whose order has expired, so that a queue without a reader does not grow for
    ever; returns their number."""
    keys = [key for queue in queues for key in (queue.key, queue.intermediate_queue_key)]
    entries = [
        (key, job_id)
        for key, job_ids in zip(keys, _entries(keys), strict=True)
        for job_id in job_ids
    ]
    with work_redis().pipeline(transaction=False) as pipe:
        for _key, job_id in entries:
            pipe.exists(Job.key_for(job_id.decode()))
        answers = pipe.execute()
        for (key, job_id), exists in zip(entries, answers, strict=True):
            if not exists:
                pipe.lrem(key, 1, job_id.decode())
        return sum(pipe.execute())


def _entries(keys: Sequence[str]) -> list[list[bytes]]:
    """The job ids in each of these lists, in one round trip."""
    with work_redis().pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.lrange(key, 0, -1)
        return pipe.execute()


def _recover_registries(queues: Sequence[Queue], is_only_copy: Callable[[str], bool]) -> int:
    """Recover the orders in RQ's registries of these queues; returns their number.

    A claimed order is left to its claimer. An order that a worker runs is left to the worker until
    its entry in StartedJobRegistry expires.
    """
    _forget_dead_workers(queues)
    connection = work_redis()
    now = clock(connection)
    script = connection.register_script(_RECOVER_FROM_REGISTRY)
    max_scores: dict[Any, Any] = {registry.StartedJobRegistry: now}
    max_scores |= dict.fromkeys(_ENDED_REGISTRIES, "+inf")
    registries = [
        (queue, kind.key_template.format(queue.name), max_score)
        for queue in queues
        for kind, max_score in max_scores.items()
    ]
    with connection.pipeline(transaction=False) as pipe:
        for _queue, key, max_score in registries:
            pipe.zrangebyscore(key, "-inf", max_score)
        member_lists: list[Any] = pipe.execute()
    order_count = 0
    for (queue, registry_key, _max_score), members in zip(registries, member_lists, strict=True):
        for member in members:
            # StartedJobRegistry has "<job>:<execution>"; a job id has no colon.
            job_id = member.partition(b":")[0].decode(errors="replace")
            job_keys = [Result.get_key(job_id), ExecutionRegistry(job_id, connection).key]
            lists = [queue.key, queue.intermediate_queue_key]
            outcome: Any = script(
                keys=[registry_key, *lists, CLAIMS, Job.key_for(job_id), *job_keys],
                args=[member, job_id, f"{queue.name}|{job_id}", now, int(is_only_copy(queue.name))],
            )
            if outcome:
                log.warning(
                    "rq_worker_left_order", queue=queue.name, job=job_id, became=outcome.decode()
                )
                order_count += 1
    return order_count


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
        answers = pipe.execute()
    dead_workers = [key for key, exists in zip(workers, answers, strict=True) if not exists]
    if dead_workers:
        with connection.pipeline(transaction=True) as pipe:
            pipe.srem(REDIS_WORKER_KEYS, *dead_workers)
            for queue in queues:
                pipe.srem(WORKERS_BY_QUEUE_KEY % queue.name, *dead_workers)
            pipe.execute()
