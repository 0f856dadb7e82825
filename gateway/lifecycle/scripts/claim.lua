-- Hand out pending messages of a gateway. ARGV: gateway, holder, how many, seconds of lease.
-- First those whose holder is gone, then by priority. Returns id, JSON, parts to send ('' all, also
-- when each Submit was refused), most users a Submit ('' no bound), times tried, how many parts it
-- had and by which ASCII limit they were cut ('' when all are to be sent), reference of a long text,
-- … flat.
local gateway, holder, most, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local out, taken = {}, 0
local claimed = P .. 'zset:claimed-' .. gateway

queue_due(gateway)

local function take(id)
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'msg', 'todo', 'most', 'tries', 'final', 'unrefused', 'parts',
    'ascii_limit', 'udh')
  if not m[1] or m[5] then
    zrem(claimed, id)
    return
  end
  zadd(claimed, moment(AT + lease), id)
  redis.call('HSET', mt, 'holder', holder)
  taken = taken + 1
  if not m[2] or m[6] == '0' then m[2], m[7], m[8] = '', '', '' end
  local values = {id, m[1], m[2], m[3] or '', m[4] or '0', m[7] or '', m[8] or '', m[9] or ''}
  for _, value in ipairs(values) do out[#out + 1] = value end
end

local lapsed = redis.call('ZRANGEBYSCORE', claimed, '-inf', STAMP, 'LIMIT', 0, most)
for _, id in ipairs(lapsed) do take(id) end
for priority = 9, 0, -1 do
  local key = pending_key(gateway, priority)
  while taken < most do
    local ids = redis.call('RPOP', key, most - taken)
    if not ids then break end
    for _, id in ipairs(ids) do take(id) end
  end
end
return done(out)
