-- Move entries of a list into a set with a lease. KEYS: list, zset. ARGV: how many, seconds of lease.
-- First those whose holder is gone. One that somebody holds already waits at the list's end until
-- that is done with it. Returns the entries.
local most, lease, at = tonumber(ARGV[1]), tonumber(ARGV[2]), now()
local out = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', at, 'LIMIT', 0, most)
local held, taken = {}, {}
for _, entry in ipairs(out) do
  redis.call('ZADD', KEYS[2], at + lease, entry)
  taken[entry] = true
end
while #out < most do
  local entry = redis.call('LPOP', KEYS[1])
  if not entry then break end
  local lease_end = redis.call('ZSCORE', KEYS[2], entry)
  if taken[entry] or lease_end and tonumber(lease_end) > at then
    held[#held + 1] = entry
  else
    taken[entry] = true
    out[#out + 1] = entry
    redis.call('ZADD', KEYS[2], at + lease, entry)
  end
end
for _, entry in ipairs(held) do redis.call('RPUSH', KEYS[1], entry) end
return out
