"""Drop claimed orders whose process is gone.

A process that takes orders from a queue owns the queue (`owners`), and renews that while it holds
any of them. So if nobody owns a queue, nobody works on the orders claimed from it, long before the
claims are over, and they must not count as queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgplatform.core.connections import work_redis
from msgplatform.core.queues.jobs import CLAIMS
from msgplatform.core.queues.owners import OWNER

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
    """Drop the orders claimed from those of these queues that nobody owns; returns those queues.

    Only for orders that can be made again: the lease of their rows brings the work back. If the
    holder lives after all, it finishes its orders or gives them back, and `jobs.done` finds nothing
    to remove.
    """
    if not names:
        return []
    keys = [key for name in names for key in (OWNER + name, f"rq:queue:{name}:intermediate")]
    script = work_redis().register_script(_DROP)
    found: Any = script(keys=[CLAIMS, *keys], args=list(names))
    return [names[index - 1] for index in found]
