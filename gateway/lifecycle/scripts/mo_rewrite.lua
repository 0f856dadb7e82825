-- What was found out about MOs. KEYS: their leased set. ARGV: the end of the lease, then id, JSON, … flat.
-- Returns 0, and writes nothing, if another forwarder has taken over one of them; else 1.
local lease_end = tonumber(ARGV[1])
for i = 2, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if not score or tonumber(score) ~= lease_end then return 0 end
end
for i = 2, #ARGV, 2 do
  local mo = P .. 'mo:' .. ARGV[i]
  if redis.call('EXISTS', mo) == 1 then redis.call('HSET', mo, 'msg', ARGV[i + 1]) end
end
return 1
