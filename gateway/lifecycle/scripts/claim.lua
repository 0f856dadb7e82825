-- Hand out pending messages of a gateway. ARGV: gateway, holder, how many, seconds of lease.
-- First those whose holder is gone, then by priority. Returns id, JSON, parts to send ('' all),
-- most users a Submit ('' no bound), times tried, … flat.
local gateway, holder, most, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local at, out, taken = now(), {}, 0
local claimed, scheduled = P .. 'zset:claimed-' .. gateway, P .. 'zset:schedule-' .. gateway

local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', at, 'LIMIT', 0, 1000)
for i = #due, 1, -1 do  -- to the front, the first one last
  redis.call('ZREM', scheduled, due[i])
  queue(due[i], true)
end

local function take(id)
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'msg', 'todo', 'most', 'tries', 'final')
  if not m[1] or m[5] then
    redis.call('ZREM', claimed, id)
    return
  end
  redis.call('ZADD', claimed, at + lease, id)
  redis.call('HSET', mt, 'holder', holder)
  taken = taken + 1
  for _, value in ipairs({id, m[1], m[2] or '', m[3] or '', m[4] or '0'}) do
    out[#out + 1] = value
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', claimed, '-inf', at, 'LIMIT', 0, most)) do take(id) end
for priority = 9, 0, -1 do
  local key = pending_key(gateway, priority)
  while taken < most do
    local id = redis.call('RPOP', key)
    if not id then break end
    take(id)
  end
end
return out
