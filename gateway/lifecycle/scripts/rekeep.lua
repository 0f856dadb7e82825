-- Replace a batch of archived messages by the same batch without a person's data. ARGV: the batch as it
-- was read, the new one. Returns 1 if it was there.
local key, size = P .. 'zset:archived', P .. 'archived-bytes'
local score = redis.call('ZSCORE', key, ARGV[1])
if not score then return 0 end
-- Add first: a set that becomes empty loses its expiry.
redis.call('ZADD', key, score, ARGV[2])
redis.call('ZREM', key, ARGV[1])
redis.call('INCRBY', size, #ARGV[2] - #ARGV[1])
return 1
