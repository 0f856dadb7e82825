-- End messages that wait for a gateway and were never sent, as expired. ARGV: ids. What a sender has
-- claimed, or a gateway may have taken, goes on. Returns how many ended.
-- An id stays in its list, where it is passed over: to remove it would search the whole list.
local count = 0
for _, id in ipairs(ARGV) do
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'state', 'final', 'holder', 'submits',
    'unrefused')
  if m[1] and m[2] == 'pending' and not m[3] and (m[4] or '') == '' and not was_sent(m[5], m[6]) then
    redis.call('ZREM', P .. 'zset:schedule-' .. m[1], id)
    count = count + finish(id, nil, 'expired', 'erased')
  end
end
return done(count)
