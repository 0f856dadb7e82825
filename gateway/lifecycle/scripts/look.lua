-- What waits for a gateway, in nobody's hands, as it will be sent; it stays where it is. ARGV: gateway,
-- priority and position to begin at, how many. At the front (9, 0) what is due, and what had a holder
-- that is gone, is pending again first.
-- Returns priority and position to go on at ('' at the end), then for each: id, JSON, '1' if it was
-- in a Submit, priority, position, … flat.
local gateway, first, at, left = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local out = {'', ''}

if first == 9 and at == 0 then
  queue_due(gateway)
  local claimed = P .. 'zset:claimed-' .. gateway
  local lapsed = redis.call('ZRANGEBYSCORE', claimed, '-inf', STAMP, 'LIMIT', 0, 1000)
  for i = #lapsed, 1, -1 do
    local mt = P .. 'mt:' .. lapsed[i]
    zrem(claimed, lapsed[i])
    redis.call('HDEL', mt, 'holder')
    if redis.call('HEXISTS', mt, 'final') == 0 then queue_first(lapsed[i]) end
  end
  settle()
end

for priority = first, 0, -1 do
  -- The end of a list is its front.
  local ids = redis.call('LRANGE', pending_key(gateway, priority), -(at + left), -(at + 1))
  for i = #ids, 1, -1 do
    local m = redis.call('HMGET', P .. 'mt:' .. ids[i], 'msg', 'gateway', 'final', 'submits')
    if m[1] and m[2] == gateway and not m[3] then
      for _, value in ipairs({ids[i], m[1], m[4] and '1' or '', priority, at + #ids - i}) do
        out[#out + 1] = value
      end
    end
  end
  left = left - #ids
  if left == 0 then
    out[1], out[2] = priority, at + #ids
    break
  end
  at = 0
end
return done(out)
