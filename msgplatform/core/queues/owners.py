"""Which process may take orders from a queue: one at a time, for a time that it renews."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgplatform.core.connections import work_redis

_OWNER = "queues:owner:"  # string per queue, expiring: who may pop it

# KEYS: queue lists, then owner keys. ARGV: me, milliseconds. Returns the indices of queues that
# have work and that nobody else owns; owning them is renewed in the same step.
_OWN = """
local n = #KEYS / 2
local won = {}
for i = 1, n do
  if redis.call('LLEN', KEYS[i]) > 0 then
    local holder = redis.call('GET', KEYS[n + i])
    if not holder or holder == ARGV[1] then
      redis.call('SET', KEYS[n + i], ARGV[1], 'PX', ARGV[2])
      won[#won + 1] = i
    end
  end
end
return won
"""
_RENEW = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
"""
_DISOWN = """
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) end
end
"""


def own(names: Sequence[str], owner: str, seconds: float) -> list[str]:
    """Of these queues, those with work that `owner` now owns for `seconds`: one script."""
    if not names:
        return []
    keys = [f"rq:queue:{name}" for name in names] + [_OWNER + name for name in names]
    script = work_redis().register_script(_OWN)
    won: Any = script(keys=keys, args=[owner, int(seconds * 1000)])
    return [names[index - 1] for index in won]


def renew(names: Sequence[str], owner: str, seconds: float) -> None:
    """Keep owning queues whose messages are still in flight."""
    if names:
        script = work_redis().register_script(_RENEW)
        script(keys=[_OWNER + name for name in names], args=[owner, int(seconds * 1000)])


def disown(names: Sequence[str], owner: str) -> None:
    """Let another process have these queues at once."""
    if names:
        work_redis().register_script(_DISOWN)(keys=[_OWNER + name for name in names], args=[owner])
