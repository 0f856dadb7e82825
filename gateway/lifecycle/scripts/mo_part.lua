-- Keep one part of a long MO. KEYS: key of the parts. ARGV: number, total, JSON, seconds kept.
-- Returns all parts when they are complete, else nothing. They are deleted by mo.lua.
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
if redis.call('HLEN', KEYS[1]) < tonumber(ARGV[2]) then return {} end
return redis.call('HGETALL', KEYS[1])
