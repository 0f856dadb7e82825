"""Orders in the hands of a process that is gone.

Who takes orders from a queue owns it (`owners`), and renews that while it has any in hand. So what
is claimed from a queue that nobody owns is nobody's any more, long before its claim is over, and
must not count as queued until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgplatform.core.connections import work_redis
from msgplatform.core.queues.jobs import CLAIMS
from msgplatform.core.queues.owners import OWNER

# KEYS: the claims, then each queue's owner key and intermediate list. ARGV: the queues' names.
# Returns the indices of those from which orders were dropped.
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
    """Forget what was claimed from those of these queues that nobody owns; which they are.

    Only for orders that can be made again: the lease of their rows brings the work back. If their
    holder lives after all, it finishes what it has in hand, and `jobs.done` finds nothing to do.
    """
    if not names:
        return []
    keys = [key for name in names for key in (OWNER + name, f"rq:queue:{name}:intermediate")]
    script = work_redis().register_script(_DROP)
    found: Any = script(keys=[CLAIMS, *keys], args=list(names))
    return [names[index - 1] for index in found]
