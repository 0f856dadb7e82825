-- Move entries of a list into a set with a lease. KEYS: list, zset. ARGV: how many, seconds of lease.
-- First those whose holder is gone. Returns the entries.
local most, lease, at = tonumber(ARGV[1]), tonumber(ARGV[2]), now()
local out = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', at, 'LIMIT', 0, most)
while #out < most do
  local entry = redis.call('LPOP', KEYS[1])
  if not entry then break end
  out[#out + 1] = entry
end
for _, entry in ipairs(out) do redis.call('ZADD', KEYS[2], at + lease, entry) end
return out
