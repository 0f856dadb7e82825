-- Give claimed messages back, to the front, perhaps to another gateway. ARGV: gateway, holder, the
-- gateway they go to, ids. Only what was never in a Submit may change its gateway.
local gateway, holder, to, count = ARGV[1], ARGV[2], ARGV[3], 0
for i = #ARGV, 4, -1 do
  local id = ARGV[i]
  local mt = P .. 'mt:' .. id
  if redis.call('HGET', mt, 'holder') == holder then
    zrem(P .. 'zset:claimed-' .. gateway, id)
    redis.call('HDEL', mt, 'holder')
    if to ~= gateway and redis.call('HEXISTS', mt, 'submits') == 0 then
      redis.call('HSET', mt, 'gateway', to)
    end
    queue_first(id)
    count = count + 1
  end
end
return done(count)
