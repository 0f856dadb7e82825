"""RQ. Only this module and `recovery` import rq and django_rq.

A job is a work order: a batch of messages for one subscription (or CRM), JSON. No RQ worker runs
it.

    queued ── claim, claim_all ──▶ claimed (in RQ's intermediate list) ── remove_orders ──▶ removed
    claimed ── its process died; `owners.take_back` ──▶ queued, at the front, as returned
    claimed ── its process died; the claim is over: `recovery` ──▶ queued, at the front, if the
               order is the only copy; else dropped: the lease of its rows brings the work back
    queued ── its ttl is over: claim, `recovery` ──▶ dropped
"""

import zlib
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import django_rq
import msgspec
from redis.client import Pipeline
from rq import Queue
from rq.job import Job

from msgplatform.core import logging
from msgplatform.core.connections import clock, work_redis

log = logging.get(__name__)

QUEUES = "rq:queues"  # RQ's set of queues with a job, now or earlier
CLAIMS = "queues:claims"  # zset: "<queue>|<job id>" → unix time until which the claim holds
_RUN_BY_WORKER = "msgplatform.core.queues.jobs.not_for_workers"

# `with_orders` returns up to this number of names unfiltered: its script reads all queues of RQ.
_MAX_UNFILTERED = 100
# `claim_all` stops with the order that reaches this size.
CLAIM_BYTES = 1024 * 1024

# KEYS: the claims, then each queue's list and intermediate list. ARGV: seconds, bytes, names.
# Returns the number of queues asked, then (index, job id, data, age in seconds, '1' if taken back)
# of each order. An entry of an expired job is dropped: its rows are queued again when their lease
# is over. An entry that was claimed already is dropped, too: `put` was sent twice, because Redis
# answered late.
_CLAIM = """
redis.call('DEL', KEYS[1] .. ':none')  -- a script that begins by a DEL may write to a full Redis
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local till = string.format('%.6f', now + ARGV[1])
local capacity = tonumber(ARGV[2])
local taken = {0}
for i = 1, #ARGV - 2 do
  taken[1] = i
  local list, intermediate = KEYS[2 * i], KEYS[2 * i + 1]
  local id = redis.call('LMOVE', list, intermediate, 'LEFT', 'RIGHT')
  while id do
    local job = redis.call('HMGET', 'rq:job:' .. id, 'data', 'put_at', 'returned')
    local member = ARGV[i + 2] .. '|' .. id
    local held = redis.call('ZSCORE', KEYS[1], member)
    if job[1] and not (held and tonumber(held) > now) then
      redis.call('ZADD', KEYS[1], till, member)
      local n = #taken
      local age = job[2] and string.format('%.6f', now - job[2]) or ''
      taken[n + 1], taken[n + 2], taken[n + 3], taken[n + 4] = i - 1, id, job[1], age
      taken[n + 5] = job[3] or ''
      capacity = capacity - #job[1]
      break
    end
    redis.call('LREM', intermediate, -1, id)
    id = redis.call('LMOVE', list, intermediate, 'LEFT', 'RIGHT')
  end
  if capacity <= 0 then break end
end
return taken
"""

# KEYS: new jobs. Stores Redis' time, because RQ's own `enqueued_at` depends on the clock of the
# host, and ages must not.
_PUT_AT = """
local time = redis.call('TIME')
for _, key in ipairs(KEYS) do
  redis.call('HSET', key, 'put_at', string.format('%.6f', time[1] + time[2] / 1e6))
end
"""

# KEYS: RQ's set of queues: `put` adds a queue with its entry, and `recovery` removes empty queues.
# ARGV: the suffixes of the lists to look at. Returns the keys of queues with entries.
_WITH_ORDERS = """
local busy = {}
for _, key in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  for _, ending in ipairs(ARGV) do
    if redis.call('EXISTS', key .. ending) > 0 then
      busy[#busy + 1] = key
      break
    end
  end
end
return busy
"""

# KEYS: lists. Separate commands for each list would be most of the cost.
_LENGTHS = """
local lengths = {}
for i, key in ipairs(KEYS) do lengths[i] = redis.call('LLEN', key) end
return lengths
"""


class Serializer:
    """Job data as JSON, which every tool can read; unpickling would run code from Redis."""

    @staticmethod
    def dumps(obj: Any, /) -> bytes:
        return msgspec.json.encode(obj)

    @staticmethod
    def loads(data: bytes, /) -> Any:
        return msgspec.json.decode(data)


def not_for_workers(*_args: Any) -> None:
    """The function that a job names: `rqworker` must fail the job, not consume it."""
    raise RuntimeError("work orders are delivered by the platform's own daemons, not by rqworker")


class Claimed(msgspec.Struct, frozen=True):
    """An order claimed by this process, with its id. `data` was put `waited` seconds ago by Redis'
    clock; 0 for an order of an earlier release. `is_returned`: a dead process had claimed the order
    before."""

    queue: str
    id: str
    data: Any
    waited: float
    is_returned: bool = False


class _Job(Job):
    """A job whose data is stored uncompressed: for a job of many messages compression is most of
    RQ's work. RQ reads both."""

    def to_dict(self, include_meta: bool = True, include_result: bool = True) -> dict[str, Any]:
        data = self.data
        self._data = b""  # for RQ's compression
        mapping = super().to_dict(include_meta, include_result)
        self._data = mapping["data"] = data
        return mapping


@lru_cache(maxsize=4096)
def _queue(name: str, connection: Any) -> Queue:
    """Cached, because a new queue asks Redis for its version before the first job."""
    return django_rq.get_queue(name, connection=connection, serializer=Serializer, job_class=_Job)


def put(name: str, orders: Sequence[Any], ttl: int | None) -> None:
    """Enqueue `orders` in one round trip; each disappears after `ttl` seconds (None: never)."""
    put_all([(name, order) for order in orders], ttl)


def put_all(orders: Iterable[tuple[str, Any]], ttl: int | None) -> None:
    """Enqueue (queue, order) pairs of many queues in one round trip: all of them, or none."""
    by_queue: dict[str, list[Any]] = {}
    for name, order in orders:
        by_queue.setdefault(name, []).append(order)
    if not by_queue:
        return
    with work_redis().pipeline(transaction=True) as pipe:
        jobs: list[Job] = []
        for name, queue_orders in by_queue.items():
            jobs += _queue(name, work_redis()).enqueue_many(
                [
                    Queue.prepare_data(_RUN_BY_WORKER, args=(order,), ttl=ttl, description=name)
                    for order in queue_orders
                ],
                pipeline=pipe,
            )
        pipe.eval(_PUT_AT, len(jobs), *(Job.key_for(job.id) for job in jobs))
        pipe.execute()


def check_writes() -> None:
    """Raise the RedisError if Redis refuses orders now."""
    work_redis().set("queues:writes", "1", ex=60)


def replace(name: str, orders: Sequence[Any]) -> None:
    """Put these orders, which never expire, in place of a queue's old orders. No process may claim
    from the queue; a reader may see old and new orders meanwhile."""
    with work_redis().pipeline(transaction=False) as pipe:
        for job_id in _queue(name, work_redis()).get_job_ids():
            pipe.lrem(f"rq:queue:{name}", 1, job_id)
            pipe.delete(Job.key_for(job_id))
        pipe.execute()
    put(name, orders, None)


def claim(name: str, seconds: float) -> Claimed | None:
    """Claim the first order of a queue for `seconds`, as plain data. None if the queue is empty, or
    its order is not readable and was dropped."""
    orders, _queue_count = claim_all([name], seconds, Any)
    return orders[0] if orders else None


def claim_all(names: Sequence[str], seconds: float, kind: Any) -> tuple[list[Claimed], int]:
    """Claim the first order of each queue for `seconds`, decoded as `kind`: one script.

    Also returns the number of queues that were asked: the claim ends early with the order that
    reaches CLAIM_BYTES, so that no process holds a gigabyte. Data that is no `kind` is logged and
    dropped; the lease of its rows brings the work back.
    """
    if not names:
        return [], 0
    lists = [f"rq:queue:{name}{suffix}" for name in names for suffix in ("", ":intermediate")]
    # One script, so that a killed process leaves an entry with its claim, or no entry.
    script = work_redis().register_script(_CLAIM)
    answer: Any = script(keys=[CLAIMS, *lists], args=[seconds, CLAIM_BYTES, *names])
    fields = iter(answer)
    queue_count = int(next(fields))
    readable, unreadable = [], []
    decode = _decoder(kind).decode
    rows = zip(fields, fields, fields, fields, fields, strict=True)
    for index, job_id, data, age, returned in rows:
        order = Claimed(names[index], job_id.decode(), None, float(age or 0), bool(returned))
        try:
            order_data = decode(_data(data))[2][0]
        except (msgspec.DecodeError, zlib.error):
            log.exception("order_unreadable", queue=order.queue, job=order.id)
            unreadable.append(order)
        else:
            readable.append(msgspec.structs.replace(order, data=order_data))
    remove_orders(unreadable)
    return readable, queue_count


@lru_cache(maxsize=16)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of the data that RQ stores for a job: (function, instance, args, kwargs)."""
    return msgspec.json.Decoder(tuple[Any, Any, tuple[kind], Any])


def _data(data: bytes) -> bytes:
    """A job's data. RQ compresses data, this module does not; uncompressed data is a JSON list."""
    return data if data.startswith(b"[") else zlib.decompress(data)


def remove_orders(orders: Iterable[Claimed]) -> None:
    """Remove finished orders: job, intermediate entry and claim."""
    orders = list(orders)
    if not orders:
        return
    with work_redis().pipeline(transaction=False) as pipe:
        for order in orders:
            remove_order(pipe, order.queue, order.id)
        pipe.execute()


def remove_order(pipe: Pipeline, name: str, job_id: str) -> None:
    """Remove a claimed order: its intermediate entry, its job and its claim."""
    pipe.lrem(f"rq:queue:{name}:intermediate", 1, job_id)
    pipe.delete(Job.key_for(job_id))
    pipe.zrem(CLAIMS, f"{name}|{job_id}")


def depths(names: Sequence[str]) -> dict[str, int]:
    """Orders waiting or claimed, per queue, in one round trip."""
    return {name: waiting + claimed for name, (waiting, claimed) in lengths(names).items()}


def lengths(names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Numbers of waiting and of claimed orders, per queue, in one round trip."""
    if not names:
        return {}
    lists = [f"rq:queue:{name}{suffix}" for name in names for suffix in ("", ":intermediate")]
    answers: Any = work_redis().register_script(_LENGTHS)(keys=lists)
    return dict(zip(names, zip(answers[::2], answers[1::2], strict=True), strict=True))


def with_orders(names: Collection[str]) -> list[str]:
    """The queues among `names` that may have waiting or claimed orders. Other queues have none.

    This round trip saves asking thousands of empty queues. A few names are returned unfiltered.
    """
    return _with_entries(names, "", ":intermediate")


def with_waiting_orders(names: Collection[str]) -> list[str]:
    """Like `with_orders`, for waiting orders, which no process has claimed."""
    return _with_entries(names, "")


def _with_entries(names: Collection[str], *suffixes: str) -> list[str]:
    if len(names) <= _MAX_UNFILTERED:
        return list(names)
    keys: Any = work_redis().register_script(_WITH_ORDERS)(keys=[QUEUES], args=suffixes)
    busy_names = (key.decode().removeprefix("rq:queue:") for key in keys)
    return [name for name in busy_names if name in names]


def oldest_seconds(name: str) -> float:
    """Age of the oldest waiting or claimed order, by Redis' clock; 0 for an empty queue."""
    connection = work_redis()
    queue = _queue(name, connection)
    ages = [0.0]
    # The oldest order is at one of the ends, because an order that waits for a lock is put last.
    ends = [(key, at) for key in (queue.key, queue.intermediate_queue_key) for at in (0, -1)]
    for key, at in ends:
        job_id: Any = connection.lindex(key, at)
        put_at: Any = job_id and connection.hget(Job.key_for(job_id.decode()), "put_at")
        if put_at:
            ages.append(clock(connection) - float(put_at))
    return max(ages)
