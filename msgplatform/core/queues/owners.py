"""Ownership of queues: one process owns a queue, takes its orders, and renews the ownership.

An owner renews its ownership while it holds any of the queue's orders. An order that was claimed
from a queue without an owner, or by another process than the owner, is a stray: its holder is dead
or stands still. Another process may take a stray back long before the claim is over. So a process
that could not renew in time works on an order only after it has renewed, and called
`filter_claimed`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgplatform.core.connections import work_redis
from msgplatform.core.queues.jobs import CLAIMS, QUEUES, Claimed

OWNER = "queues:owner:"  # string per name, expiring: the owner of its queues

# KEYS: for each name its owner key, then its queues' lists. ARGV: me, milliseconds, then for each
# name how many queues it has. Returns the indices of names with work in one of their queues and
# without another owner; the same script renews their ownership.
_OWN = """
redis.call('DEL', KEYS[1] .. ':none')  -- a script that begins by a DEL may write to a full Redis
local won, at = {}, 1
for i = 1, #ARGV - 2 do
  local count, work = tonumber(ARGV[i + 2]), 0
  for q = at + 1, at + count do work = work + redis.call('LLEN', KEYS[q]) end
  if work > 0 then
    local holder = redis.call('GET', KEYS[at])
    if not holder or holder == ARGV[1] then
      redis.call('SET', KEYS[at], ARGV[1], 'PX', ARGV[2])
      won[#won + 1] = i
    end
  end
  at = at + count + 1
end
return won
"""
# KEYS: owner keys. ARGV: me, milliseconds. Returns the indices of keys with another owner, and of
# missing keys (expired, or Redis was flushed), which are taken again, because work may be in
# flight.
_RENEW = """
redis.call('DEL', KEYS[1] .. ':none')  -- as in _OWN
local lost, lapsed = {}, {}
for i = 1, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= ARGV[1] then
    lost[#lost + 1] = i
  else
    if not holder then lapsed[#lapsed + 1] = i end
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  end
end
return {lost, lapsed}
"""
_DISOWN = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) end
end
"""


def own(names: Sequence[str], owner: str, seconds: float) -> list[str]:
    """The queues with work, among these, that `owner` now owns for `seconds`: one script."""
    return own_groups({name: [name] for name in names}, owner, seconds)


def own_groups(groups: Mapping[str, Sequence[str]], owner: str, seconds: float) -> list[str]:
    """Like `own`, for groups of queues that are owned together: name of the group → its queues.
    Returns the groups with work in a queue that `owner` now owns. One script."""
    if not groups:
        return []
    keys: list[str] = []
    for name, queues in groups.items():
        keys += [OWNER + name, *(f"rq:queue:{queue}" for queue in queues)]
    script = work_redis().register_script(_OWN)
    counts = [len(queues) for queues in groups.values()]
    indices: Any = script(keys=keys, args=[owner, int(seconds * 1000), *counts])
    names = list(groups)
    return [names[index - 1] for index in indices]


def renew(names: Sequence[str], owner: str, seconds: float) -> tuple[list[str], list[str]]:
    """Keep owning queues with messages in flight. Returns the queues that another process owns now,
    and the queues without an owner, which another process may have owned meanwhile."""
    if not names:
        return [], []
    script = work_redis().register_script(_RENEW)
    answer: Any = script(keys=[OWNER + name for name in names], args=[owner, int(seconds * 1000)])
    lost_names, lapsed_names = ([names[index - 1] for index in indices] for indices in answer)
    return lost_names, lapsed_names


def disown(names: Sequence[str], owner: str) -> None:
    """Give these queues up at once, for another process."""
    if names:
        work_redis().register_script(_DISOWN)(keys=[OWNER + name for name in names], args=[owner])


# KEYS: each queue's owner key and intermediate list. ARGV: me. Returns for each queue its claimed
# orders; none if another process owns the queue.
_LIST_CLAIMED = """
local claimed = {}
for i = 1, #KEYS / 2 do
  local holder = redis.call('GET', KEYS[2 * i - 1])
  local is_free = not holder or holder == ARGV[1]
  claimed[i] = is_free and redis.call('LRANGE', KEYS[2 * i], 0, -1) or {}
end
return claimed
"""
# KEYS: the claims, RQ's set of queues, then an order's owner key, intermediate list, queue and job.
# ARGV: me, the order's member of the claims, its id. Returns 1 if the order is in its queue again.
_TAKE_BACK = """
redis.call('DEL', KEYS[1] .. ':none')  -- as in _OWN
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] or redis.call('LREM', KEYS[4], 1, ARGV[3]) == 0 then return 0 end
redis.call('ZREM', KEYS[1], ARGV[2])
if redis.call('EXISTS', KEYS[6]) == 0 then return 0 end
redis.call('HSET', KEYS[6], 'returned', 1)
redis.call('LPUSH', KEYS[5], ARGV[3])
redis.call('SADD', KEYS[2], KEYS[5])
return 1
"""


def strays(names: Sequence[str], owner: str, own_ids: Collection[str]) -> list[tuple[str, str]]:
    """Queue and job id of claimed orders that no process works on; `own_ids` are the orders that
    `owner` has in flight. One script."""
    if not names:
        return []
    keys = [key for name in names for key in (OWNER + name, f"rq:queue:{name}:intermediate")]
    id_lists: Any = work_redis().register_script(_LIST_CLAIMED)(keys=keys, args=[owner])
    return [
        (name, id)
        for name, job_ids in zip(names, id_lists, strict=True)
        for id in map(bytes.decode, job_ids)
        if id not in own_ids
    ]


# KEYS: an order's intermediate list and job, and so on. ARGV: their ids. Returns the indices of
# orders that have been claimed all the time.
_FILTER_CLAIMED = """
local held = {}
for i = 1, #ARGV do
  local is_there = redis.call('LPOS', KEYS[2 * i - 1], ARGV[i])
  if is_there and redis.call('HEXISTS', KEYS[2 * i], 'returned') == 0 then held[#held + 1] = i end
end
return held
"""


def filter_claimed(orders: Sequence[Claimed]) -> list[Claimed]:
    """The orders, among these claimed ones, that no process has taken back. One script."""
    if not orders:
        return []
    keys: list[str] = []
    for order in orders:
        keys += [f"rq:queue:{order.queue}:intermediate", f"rq:job:{order.id}"]
    ids = [order.id for order in orders]
    indices: Any = work_redis().register_script(_FILTER_CLAIMED)(keys=keys, args=ids)
    return [orders[index - 1] for index in indices]


def take_back(orders: Sequence[tuple[str, str]], owner: str) -> list[tuple[str, str]]:
    """Put strays (queue, job id) back at the front of their queues, marked as returned; returns the
    strays that still exist. A queue with a new owner is left to that owner.

    If its holder is alive, it calls `filter_claimed` before it works on the order. An order that it
    has finished is removed by `jobs.remove_orders`, wherever the order is.
    """
    with work_redis().pipeline(transaction=False) as pipe:
        script = work_redis().register_script(_TAKE_BACK)
        for name, id in reversed(orders):  # so that the first stray is in front
            lists = [f"rq:queue:{name}:intermediate", f"rq:queue:{name}"]
            keys = [CLAIMS, QUEUES, OWNER + name, *lists, f"rq:job:{id}"]
            script(keys=keys, args=[owner, f"{name}|{id}", id], client=pipe)
        answers = reversed(pipe.execute())
    return [order for order, is_back in zip(orders, answers, strict=True) if is_back]
