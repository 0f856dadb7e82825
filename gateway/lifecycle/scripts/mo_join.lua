-- Take in a long MO made of kept parts, once. KEYS: its parts. ARGV: id, JSON, then number and id of
-- each part. Returns 1, or 0 when it was taken in already, or other parts are there by now: those of
-- a message that uses the same reference, maybe for the same text, or one that came in the last moment.
if redis.call('HLEN', KEYS[1]) ~= (#ARGV - 2) / 2 then return 0 end
for i = 3, #ARGV, 2 do
  local part = redis.call('HGET', KEYS[1], ARGV[i])
  if not part or cjson.decode(string.sub(part, 41)).id ~= ARGV[i + 1] then return 0 end
end
redis.call('ZREM', P .. 'zset:mo-part', KEYS[1])
redis.call('DEL', KEYS[1])
take_mo(ARGV[1], ARGV[2])
return 1
