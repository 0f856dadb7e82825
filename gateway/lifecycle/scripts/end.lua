-- End messages that this holder claimed and does not send (expired, cannot be sent).
-- ARGV: gateway, holder, then for each: id, final, error. Returns how many.
local gateway, holder, count = ARGV[1], ARGV[2], 0
for i = 3, #ARGV, 3 do
  local id, mt = ARGV[i], P .. 'mt:' .. ARGV[i]
  local m = redis.call('HMGET', mt, 'holder', 'final')
  if m[1] == holder then
    zrem(P .. 'zset:claimed-' .. gateway, id)
    redis.call('HDEL', mt, 'holder')
    count = count + finish(id, m[2], ARGV[i + 1], ARGV[i + 2])
  end
end
return done(count)
