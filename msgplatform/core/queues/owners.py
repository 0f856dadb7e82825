"""One process at a time owns a queue and may take orders from it, for a time that it renews.

An owner renews its queue while it holds any of the queue's orders. So if a queue has no owner, no
process works on the orders claimed from it, long before the claims are over: they are dropped, and
do not count as queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgplatform.core.connections import work_redis
from msgplatform.core.queues.jobs import CLAIMS

OWNER = "queues:owner:"  # string per name, expiring: the process that may pop its queues

# KEYS: for each name its owner key, then its queues' lists. ARGV: me, milliseconds, then for each
# name how many queues it has. Returns the indices of the names that have work in one of their
# queues and that nobody else owns; the same script renews their ownership.
_OWN = """
redis.call('DEL', KEYS[1] .. ':none')  -- a full Redis lets a script go on that began by freeing
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
# KEYS: owner keys. ARGV: me, milliseconds. Returns the indices of those that another has. A missing
# key (it ran out, or Redis was flushed) is taken again: its work is still in flight.
_RENEW = """
redis.call('DEL', KEYS[1] .. ':none')  -- as in _OWN
local lost = {}
for i = 1, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= ARGV[1] then
    lost[#lost + 1] = i
  else
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  end
end
return lost
"""
_DISOWN = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) end
end
"""


def own(names: Sequence[str], owner: str, seconds: float) -> list[str]:
    """Of these queues, those with work that `owner` now owns for `seconds`: one script."""
    return own_groups({name: [name] for name in names}, owner, seconds)


def own_groups(groups: Mapping[str, Sequence[str]], owner: str, seconds: float) -> list[str]:
    """The same for groups of queues that are owned together: name of the group → its queues.
    Returns the names with work in one of their queues that `owner` now owns. One script."""
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


def renew(names: Sequence[str], owner: str, seconds: float) -> list[str]:
    """Keep owning queues whose messages are still in flight; returns those that another process
    owns by now."""
    if not names:
        return []
    script = work_redis().register_script(_RENEW)
    indices: Any = script(keys=[OWNER + name for name in names], args=[owner, int(seconds * 1000)])
    return [names[index - 1] for index in indices]


def disown(names: Sequence[str], owner: str) -> None:
    """Give these queues up at once, for another process."""
    if names:
        work_redis().register_script(_DISOWN)(keys=[OWNER + name for name in names], args=[owner])


# KEYS: the claims, then each queue's owner key and intermediate list. ARGV: the queues' names.
# Returns the indices of the queues from which orders were dropped.
_DROP = """
local from = {}
for i = 1, #ARGV do
  local hands = KEYS[2 * i + 1]
  if redis.call('LLEN', hands) > 0 and redis.call('EXISTS', KEYS[2 * i]) == 0 then
    for _, id in ipairs(redis.call('LRANGE', hands, 0, -1)) do
      redis.call('DEL', 'rq:job:' .. id)
      redis.call('ZREM', KEYS[1], ARGV[i] .. '|' .. id)
    end
    redis.call('DEL', hands)
    from[#from + 1] = i
  end
end
return from
"""


def drop(names: Sequence[str]) -> list[str]:
    """Drop the claimed orders of the queues among `names` that have no owner; returns those queues.

    Only for orders that can be made again: the lease of their rows brings the work back. If the
    holder lives after all, it finishes its orders or gives them back, and `jobs.done` finds nothing
    to remove.
    """
    if not names:
        return []
    keys = [key for name in names for key in (OWNER + name, f"rq:queue:{name}:intermediate")]
    script = work_redis().register_script(_DROP)
    indices: Any = script(keys=[CLAIMS, *keys], args=list(names))
    return [names[index - 1] for index in indices]
