-- Take in an MO or a UserRpt. KEYS: mo-seen of its sequence, key of its collected parts ('' for none).
-- ARGV: id, JSON, seconds for which its sequence is remembered. Returns 1, or 0 for a repeat.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[3]) then return 0 end
redis.call('HSET', P .. 'mo:' .. ARGV[1], 'msg', ARGV[2], 'at', now())
redis.call('RPUSH', P .. 'list:mo-id', ARGV[1])
redis.call('INCR', P .. 'mo-GID')
if KEYS[2] ~= '' then redis.call('DEL', KEYS[2]) end
return 1
