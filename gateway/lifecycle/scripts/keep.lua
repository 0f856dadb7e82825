-- Keep a batch of what was archived, for a restore of the database. KEYS: the leased set of its messages,
-- none if nobody leases them. ARGV: the batch, seconds for which it is kept, how many bytes all batches
-- may take, and with a leased set the end of the lease and the ids. The oldest batches go first.
-- Returns 0, and keeps nothing, if another pump has taken over one of the messages: that pump keeps them,
-- and an erasure may have changed its batch since. Else returns 1.
local key, size = P .. 'zset:archived', P .. 'archived-bytes'
if KEYS[1] then
  local lease_end = tonumber(ARGV[4])
  for i = 5, #ARGV do
    local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if not score or tonumber(score) ~= lease_end then return 0 end
  end
end
if redis.call('ZADD', key, STAMP, ARGV[1]) == 1 then redis.call('INCRBY', size, #ARGV[1]) end

local function is_over(first)
  if not first[1] then return false end
  return tonumber(first[2]) < AT - ARGV[2] or tonumber(redis.call('GET', size)) > tonumber(ARGV[3])
end

-- At most 1000: a shorter time can leave several 100,000, and Redis does nothing else meanwhile.
for _ = 1, 1000 do
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if not is_over(first) then break end
  redis.call('ZREM', key, first[1])
  redis.call('DECRBY', size, #first[1])
end
redis.call('EXPIRE', key, ARGV[2])
redis.call('EXPIRE', size, ARGV[2])
return 1
