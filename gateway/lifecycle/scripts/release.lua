-- Give claimed messages back, to the front. ARGV: gateway, holder, ids. Returns how many.
local gateway, holder, count = ARGV[1], ARGV[2], 0
for i = #ARGV, 3, -1 do
  local id = ARGV[i]
  local mt = P .. 'mt:' .. id
  if redis.call('HGET', mt, 'holder') == holder then
    zrem(P .. 'zset:claimed-' .. gateway, id)
    redis.call('HDEL', mt, 'holder')
    queue_first(id)
    count = count + 1
  end
end
return done(count)
