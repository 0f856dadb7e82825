-- Remember Submits before they are written to a socket. ARGV: gateway, holder, seconds until the
-- same bytes go out again, seconds after which their messages are unknown whatever comes (0: never),
-- number of Submits, then for each: seqno, ts, node, part, parts, ASCII limit by which they were cut,
-- frame, JSON of user → id, number of members, ids.
-- Returns for each 1, or 0 when a member is not this holder's any more, or has ended: such a Submit is
-- not sent.
local gateway, holder, wait = ARGV[1], ARGV[2], tonumber(ARGV[4])
local again_at, report_by = moment(AT + ARGV[3]), moment(AT + wait)
local i, out, messages, sequences = 6, {}, {}, {}

-- What is to be sent again beside this part: it may have come back after the holder claimed. A message
-- that is sent as a whole again may have fewer parts than before.
local function others(todo, part, parts)
  local left = {}
  for other in string.gmatch(todo, '%d+') do
    if other ~= part and tonumber(other) <= tonumber(parts) then left[#left + 1] = other end
  end
  return table.concat(left, ' ')
end

-- The members as Redis has them, with what this call adds; nil when one is not this holder's, or has
-- ended: its Report did not come in time, say, and its system may have sent it again.
local function members(first, last)
  local found = {}
  for j = first, last do
    local id = ARGV[j]
    local m = messages[id] or redis.call('HMGET', P .. 'mt:' .. id, 'holder', 'submits', 'todo', 'final',
      'unrefused', 'most')
    if m[1] ~= holder or m[4] then return nil end
    found[id] = m
  end
  return found
end

local function remember(id, m, seqno, ts, node, part, parts, ascii_limit)
  local sent = part .. '/' .. node .. '/' .. seqno .. ':' .. ts
  if m[5] or not m[2] then m[5] = (m[5] or 0) + 1 end
  m[2] = m[2] and m[2] .. ' ' .. sent or sent
  m[3] = m[3] and others(m[3], part, parts)
  m.seqno, m.ts, m.parts, m.ascii_limit = seqno, ts, parts, ascii_limit
  messages[id] = m
end

for n = 1, tonumber(ARGV[5]) do
  local seqno, ts, node, part, parts = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local count = tonumber(ARGV[i + 8])
  local mine = members(i + 9, i + 8 + count)
  if mine then
    local name = seqno .. ':' .. ts
    redis.call('HSET', P .. 'submit:' .. name, 'frame', ARGV[i + 6], 'node', node, 'gateway', gateway,
      'users', ARGV[i + 7], 'part', part, 'open', count, 'tries', 0)
    sadd(SUBMITED, name)
    zadd(P .. 'zset:submit-due-' .. gateway, again_at, name)
    for id, m in pairs(mine) do remember(id, m, seqno, ts, node, part, parts, ARGV[i + 5]) end
  end
  out[n] = mine and 1 or 0
  i = i + 9 + count
end
-- All parts of a message come in one call: one write for all of them, after which the message is no longer
-- claimed. An empty `holder` is nobody; to remove the field would be a second write.
for id, m in pairs(messages) do
  local mt, is_whole = P .. 'mt:' .. id, (m[3] or '') == ''
  local fields = {'state', is_whole and 'submitted' or 'pending', 'submitted_at', STAMP, 'parts', m.parts,
    'ascii_limit', m.ascii_limit, 'submits', m[2], 'holder', ''}
  if m[5] then
    fields[#fields + 1] = 'unrefused'
    fields[#fields + 1] = m[5]
  end
  if not is_whole then
    fields[#fields + 1] = 'todo'
    fields[#fields + 1] = m[3]
  end
  many('HSET', mt, fields)
  for key, value in pairs({['mt-seqno:'] = m.seqno, ['mt-ts:'] = m.ts}) do
    sequences[#sequences + 1] = P .. key .. id
    sequences[#sequences + 1] = value
  end
  zrem(P .. 'zset:claimed-' .. gateway, id)
  if not is_whole then
    queue_first(id)
  else
    if m[3] or m[6] then redis.call('HDEL', mt, 'todo', 'most') end
    if wait > 0 then zadd(REPORT_DUE, report_by, id) end
  end
end
many('MSET', nil, sequences)
return done(out)
