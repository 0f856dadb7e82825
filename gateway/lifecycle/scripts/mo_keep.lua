-- Keep one part of a long MO. KEYS: its parts, mo-seen of its sequence and content, that of an earlier
-- version. ARGV: number, total, digest of the content, JSON, seconds until the message is taken in as
-- it is, seconds a sequence is remembered.
-- Returns what it became, and after it number, JSON, … of the parts:
-- 'waiting' (and a repeat of what is over), 'whole' with all parts, 'cut' with those of an older
-- message that used the same reference: take that in, then keep this part again.
local old = redis.call('HGET', KEYS[1], ARGV[1])
local seen = redis.call('EXISTS', KEYS[2], KEYS[3]) > 0
if not seen and old and string.sub(old, 1, 40) ~= ARGV[3] then
  local out = {'cut'}
  for _, value in ipairs(redis.call('HGETALL', KEYS[1])) do out[#out + 1] = value end
  return out
end
if not seen then
  redis.call('SET', KEYS[2], 'part', 'EX', ARGV[6])
  redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[3] .. ARGV[4])
  redis.call('ZADD', P .. 'zset:mo-part', 'NX', AT + ARGV[5], KEYS[1])
end
if redis.call('HLEN', KEYS[1]) < tonumber(ARGV[2]) then return {'waiting'} end
local out = {'whole'}
for _, value in ipairs(redis.call('HGETALL', KEYS[1])) do out[#out + 1] = value end
return out
