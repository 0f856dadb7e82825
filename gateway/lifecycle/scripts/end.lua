-- End messages that this holder claimed and does not send (expired, cannot be sent).
-- ARGV: gateway, holder, then for each: id, final, error. Returns how many.
local gateway, holder, at, count = ARGV[1], ARGV[2], now(), 0
for i = 3, #ARGV, 3 do
  local mt = P .. 'mt:' .. ARGV[i]
  if redis.call('HGET', mt, 'holder') == holder then
    redis.call('ZREM', P .. 'zset:claimed-' .. gateway, ARGV[i])
    redis.call('HDEL', mt, 'holder')
    count = count + finish(ARGV[i], ARGV[i + 1], ARGV[i + 2], at)
  end
end
return count
