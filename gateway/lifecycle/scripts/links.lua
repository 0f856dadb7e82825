-- What a process says of its connections. KEYS: hash. ARGV: seconds until it is forgotten, process,
-- field, JSON, … flat. Drops its other fields, and those of processes that are gone.
local said = {}
local oldest, own = AT - ARGV[1], ARGV[2] .. ':'
for i = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], STAMP .. ' ' .. ARGV[i + 1])
  said[ARGV[i]] = true
end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local mine = string.sub(all[i], 1, #own) == own
  local when = tonumber(string.match(all[i + 1], '^%S+'))
  if mine and not said[all[i]] or when < oldest then redis.call('HDEL', KEYS[1], all[i]) end
end
return redis.call('EXPIRE', KEYS[1], ARGV[1])
