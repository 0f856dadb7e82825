-- Take in a long MO made of kept parts, once. KEYS: its parts. ARGV: id, JSON. Returns 1, or 0 when
-- another receiver took it in.
redis.call('ZREM', P .. 'zset:mo-part', KEYS[1])
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
take_mo(ARGV[1], ARGV[2], now())
return 1
