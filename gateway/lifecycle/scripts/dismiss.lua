-- End messages that wait for a gateway and were never sent, as expired. ARGV: ids. What a sender has
-- claimed, or a gateway may have taken, goes on. Returns how many ended.
local count = 0
for _, id in ipairs(ARGV) do
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'priority', 'final', 'holder', 'submits',
    'unrefused')
  if m[1] and not m[3] and not m[4] and not was_sent(m[5], m[6]) then
    local is_listed = redis.call('LREM', pending_key(m[1], m[2]), 0, id) > 0
    local is_scheduled = redis.call('ZREM', P .. 'zset:schedule-' .. m[1], id) > 0
    if is_listed or is_scheduled then count = count + finish(id, nil, 'expired', 'erased') end
  end
end
return done(count)
