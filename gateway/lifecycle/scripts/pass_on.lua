-- Published: from the leased set to the next list, once. KEYS: zset, list. ARGV: entries.
local count = 0
for _, entry in ipairs(ARGV) do
  if redis.call('ZREM', KEYS[1], entry) == 1 then
    push('RPUSH', KEYS[2], entry)
    count = count + 1
  end
end
return done(count)
