-- Take in a long MO made of kept parts, once. KEYS: its parts. ARGV: id, JSON. Returns 1, or 0 when
-- another receiver took it in.
redis.call('ZREM', P .. 'zset:mo-part', KEYS[1])
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('HSET', P .. 'mo:' .. ARGV[1], 'msg', ARGV[2], 'at', now())
redis.call('RPUSH', P .. 'list:mo-id', ARGV[1])
redis.call('INCR', P .. 'mo-GID')
return 1
