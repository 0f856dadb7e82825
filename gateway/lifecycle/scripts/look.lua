-- What waits for a gateway, in nobody's hands, as it will be sent; it stays where it is. ARGV: gateway,
-- holder, priority and position to begin at, how many. At the front (9, 0) what is due, and what had a
-- holder that is gone, is pending again first, a thousand of each; one holder at a time looks.
-- Returns priority and position to go on at ('' at the end), then for each: id, JSON, '1' if its
-- gateway may have taken it, priority, position, … flat.
local gateway, holder = ARGV[1], ARGV[2]
local first, at, left = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local out = {'', ''}

-- Nothing is written for a gateway without messages: each write waits for the disk.
if first == 9 and at == 0 and not is_waiting(gateway, {'schedule', 'claimed'}) then return out end

local walker = P .. 'walker:' .. gateway
local other = redis.call('GET', walker)
if other and other ~= holder then return out end
redis.call('SET', walker, holder, 'EX', 10)

local function queue_lapsed()
  local claimed = P .. 'zset:claimed-' .. gateway
  local lapsed = redis.call('ZRANGEBYSCORE', claimed, '-inf', STAMP, 'LIMIT', 0, 1000)
  for i = #lapsed, 1, -1 do
    zrem(claimed, lapsed[i])
    redis.call('HDEL', P .. 'mt:' .. lapsed[i], 'holder')
    queue_first(lapsed[i])
  end
  settle()
  return #lapsed
end

local more_is_due = false
if first == 9 and at == 0 then
  more_is_due = math.max(queue_due(gateway), queue_lapsed()) == 1000
end

for priority = first, 0, -1 do
  local key, over = pending_key(gateway, priority), 0
  -- The end of a list is its front.
  local ids = redis.call('LRANGE', key, -(at + left), -(at + 1))
  for i = #ids, 1, -1 do
    local m = redis.call('HMGET', P .. 'mt:' .. ids[i], 'msg', 'gateway', 'final', 'submits',
      'unrefused')
    if not m[1] or m[3] then  -- it has ended since; so far it stands where it stood
      redis.call('LSET', key, -(at + #ids - i + 1), '')
      over = over + 1
    elseif m[2] == gateway then
      local sent = was_sent(m[4], m[5]) and '1' or ''
      for _, value in ipairs({ids[i], m[1], sent, priority, at + #ids - i - over}) do
        out[#out + 1] = value
      end
    end
  end
  if over > 0 then redis.call('LREM', key, -over, '') end
  left = left - #ids
  if left == 0 then
    out[1], out[2] = priority, at + #ids - over
    break
  end
  at = 0
end
if more_is_due then out[1], out[2] = 9, 0 end
return done(out)
