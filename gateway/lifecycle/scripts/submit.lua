-- Remember Submits before they are written to a socket. ARGV: gateway, holder, seconds until the
-- same bytes go out again, seconds after which their messages are unknown whatever comes (0: never),
-- number of Submits, then for each: seqno, ts, node, part, parts, ASCII limit by which they were cut,
-- frame, JSON of user → id, number of members, ids.
-- Returns for each 1, or 0 when a member is not this holder's any more, or has ended: such a Submit is
-- not sent.
local gateway, holder, wait = ARGV[1], ARGV[2], tonumber(ARGV[4])
local again_at, report_by = moment(AT + ARGV[3]), moment(AT + wait)
local i, out, released = 6, {}, {}

-- What is to be sent again beside this part: it may have come back after the holder claimed. A message
-- that is sent as a whole again may have fewer parts than before.
local function others(todo, part, parts)
  local left = {}
  for other in string.gmatch(todo, '%d+') do
    if other ~= part and tonumber(other) <= tonumber(parts) then left[#left + 1] = other end
  end
  return table.concat(left, ' ')
end

-- The members as Redis has them; nil when one is not this holder's, or has ended: its Report did not
-- come in time, say, and its system may have sent it again.
local function members(first, last)
  local found = {}
  for j = first, last do
    local m = redis.call('HMGET', P .. 'mt:' .. ARGV[j], 'holder', 'submits', 'todo', 'final',
      'unrefused')
    if m[1] ~= holder or m[4] then return nil end
    found[ARGV[j]] = m
  end
  return found
end

local function remember(id, m, seqno, ts, node, part, parts, ascii_limit)
  local mt = P .. 'mt:' .. id
  local sent = part .. '/' .. node .. '/' .. seqno .. ':' .. ts
  redis.call('HSET', P .. 'mt-seqno:' .. id, part, seqno)
  redis.call('HSET', P .. 'mt-ts:' .. id, part, ts)
  redis.call('HSET', mt, 'state', 'submitted', 'submitted_at', STAMP, 'parts', parts, 'ascii_limit', ascii_limit, 'submits', m[2] and m[2] .. ' ' .. sent or sent)
  if m[5] or not m[2] then redis.call('HINCRBY', mt, 'unrefused', 1) end
  if m[3] then
    m[3] = others(m[3], part, parts)
    redis.call('HSET', mt, 'todo', m[3])
  end
  released[id] = m[3] or ''
end

for n = 1, tonumber(ARGV[5]) do
  local seqno, ts, node, part, parts = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local count = tonumber(ARGV[i + 8])
  local mine = members(i + 9, i + 8 + count)
  if mine then
    local name = seqno .. ':' .. ts
    redis.call('HSET', P .. 'submit:' .. name, 'frame', ARGV[i + 6], 'node', node, 'gateway', gateway,
      'users', ARGV[i + 7], 'part', part, 'open', count, 'tries', 0)
    sadd(P .. 'set:submited', name)
    zadd(P .. 'zset:submit-due-' .. gateway, again_at, name)
    for id, m in pairs(mine) do remember(id, m, seqno, ts, node, part, parts, ARGV[i + 5]) end
  end
  out[n] = mine and 1 or 0
  i = i + 9 + count
end
-- All parts of a message come in one call: only after it the message is no longer claimed.
for id, todo in pairs(released) do
  local mt = P .. 'mt:' .. id
  zrem(P .. 'zset:claimed-' .. gateway, id)
  if todo == '' then
    redis.call('HDEL', mt, 'holder', 'todo', 'most')
    if wait > 0 then zadd(P .. 'zset:report-due', report_by, id) end
  else
    redis.call('HDEL', mt, 'holder')
    redis.call('HSET', mt, 'state', 'pending')
    queue_first(id)
  end
end
return done(out)
