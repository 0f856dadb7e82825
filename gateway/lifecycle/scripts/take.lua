-- Move entries of a list into a set with a lease. KEYS: list, zset. ARGV: how many, seconds of lease.
-- First those whose holder is gone, of one lease and nothing beside them: what that holder did with them
-- together is repeated with the same ones. One that somebody holds already waits at the list's end
-- until that is done with it. Returns when the lease ends, and the entries.
local most, lease_end = tonumber(ARGV[1]), moment(AT + ARGV[2])
local first = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', STAMP, 'WITHSCORES', 'LIMIT', 0, 1)
local out, taken = {}, {}
if first[2] then out = redis.call('ZRANGEBYSCORE', KEYS[2], first[2], first[2], 'LIMIT', 0, most) end
for _, entry in ipairs(out) do
  zadd(KEYS[2], lease_end, entry)
end

local function take(entries)
  local leases = redis.call('ZMSCORE', KEYS[2], unpack(entries))
  for i, entry in ipairs(entries) do
    if taken[entry] or leases[i] and tonumber(leases[i]) > AT then
      push('RPUSH', KEYS[1], entry)
    else
      taken[entry] = true
      out[#out + 1] = entry
      zadd(KEYS[2], lease_end, entry)
    end
  end
end

while not first[2] and #out < most do
  local entries = redis.call('LPOP', KEYS[1], math.min(4000, most - #out))
  if not entries then break end
  take(entries)
end
settle()
return {lease_end, out}
