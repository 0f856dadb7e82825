-- Move entries of a list into a set with a lease. KEYS: list, zset. ARGV: how many, seconds of lease.
-- First those whose holder is gone. One that somebody holds already waits at the list's end until
-- that is done with it. Returns when the lease ends, and the entries.
local most, lease_end = tonumber(ARGV[1]), moment(AT + ARGV[2])
local out = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', STAMP, 'LIMIT', 0, most)
local taken = {}
for _, entry in ipairs(out) do
  zadd(KEYS[2], lease_end, entry)
  taken[entry] = true
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

while #out < most do
  local entries = redis.call('LPOP', KEYS[1], math.min(4000, most - #out))
  if not entries then break end
  take(entries)
end
settle()
return {lease_end, out}
