-- Keep a batch of what was archived, for a restore of the database. ARGV: the batch, seconds for which
-- it is kept, how many bytes all batches may take. The oldest go first. Returns how many are kept.
local key, size = P .. 'zset:archived', P .. 'archived-bytes'
if redis.call('ZADD', key, STAMP, ARGV[1]) == 1 then redis.call('INCRBY', size, #ARGV[1]) end

local function is_over(first)
  if not first[1] then return false end
  return tonumber(first[2]) < AT - ARGV[2] or tonumber(redis.call('GET', size)) > tonumber(ARGV[3])
end

local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
while is_over(first) do
  redis.call('ZREM', key, first[1])
  redis.call('DECRBY', size, #first[1])
  first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
end
redis.call('EXPIRE', key, ARGV[2])
redis.call('EXPIRE', size, ARGV[2])
return redis.call('ZCARD', key)
