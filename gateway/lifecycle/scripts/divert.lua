-- Pending messages leave a gateway's lists: for another gateway's, behind what waits there, or because
-- their time is over. ARGV: gateway, then for each: id, priority and position where it was seen, the
-- gateway it goes to ('': it ends as expired). What has moved since stays, and what its gateway may have
-- taken, because another one must not send it. Returns how many left.
local gateway, count, emptied = ARGV[1], 0, {}
for i = 2, #ARGV, 4 do
  local id, to = ARGV[i], ARGV[i + 3]
  local key, place = pending_key(gateway, ARGV[i + 1]), -1 - tonumber(ARGV[i + 2])
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'final', 'submits', 'unrefused')
  if m[1] == gateway and not m[2] and (to == '' or not was_sent(m[3], m[4]))
      and redis.call('LINDEX', key, place) == id then
    redis.call('LSET', key, place, '')
    emptied[key] = (emptied[key] or 0) + 1
    if to == '' then
      finish(id, nil, 'expired', '')
    else
      redis.call('HSET', P .. 'mt:' .. id, 'gateway', to)
      push('LPUSH', pending_key(to, ARGV[i + 1]), id)
    end
    count = count + 1
  end
end
-- One pass for all of them: to remove each by its id would search the list each time.
for key, holes in pairs(emptied) do redis.call('LREM', key, -holes, '') end
return done(count)
