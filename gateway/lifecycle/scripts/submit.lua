-- Remember Submits before they are written to a socket. ARGV: gateway, holder, seconds until the
-- same bytes go out again, seconds after which their messages are unknown whatever comes (0: never),
-- number of Submits, then for each: seqno, ts, node, part, parts, frame, JSON of user → id, number of
-- members, ids.
-- Returns for each 1, or 0 when a member is not this holder's any more: such a Submit is not sent.
local gateway, holder, patience, wait = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local at, i, out = now(), 6, {}
local claimed = P .. 'zset:claimed-' .. gateway
local released = {}

-- What is to be sent again beside this part: it may have come back after the holder claimed.
local function others(todo, part)
  local left = {}
  for other in string.gmatch(todo, '%d+') do
    if other ~= part then left[#left + 1] = other end
  end
  return table.concat(left, ' ')
end

for n = 1, tonumber(ARGV[5]) do
  local seqno, ts, node, part, parts = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local frame, users, count = ARGV[i + 5], ARGV[i + 6], tonumber(ARGV[i + 7])
  local mine = true
  for j = i + 8, i + 7 + count do
    if redis.call('HGET', P .. 'mt:' .. ARGV[j], 'holder') ~= holder then mine = false end
  end
  if mine then
    local name = seqno .. ':' .. ts
    redis.call('HSET', P .. 'submit:' .. name, 'frame', frame, 'node', node, 'gateway', gateway,
      'users', users, 'part', part, 'open', count, 'tries', 0)
    redis.call('SADD', P .. 'set:submited', name)
    redis.call('ZADD', P .. 'zset:submit-due-' .. gateway, at + patience, name)
    for j = i + 8, i + 7 + count do
      local id = ARGV[j]
      local mt = P .. 'mt:' .. id
      redis.call('HSET', P .. 'mt-seqno:' .. id, part, seqno)
      redis.call('HSET', P .. 'mt-ts:' .. id, part, ts)
      local m = redis.call('HMGET', mt, 'submits', 'todo', 'final')
      redis.call('HSET', mt, 'state', m[3] and 'reported' or 'submitted', 'submitted_at', at,
        'parts', parts,
        'submits', (m[1] and m[1] .. ' ' or '') .. part .. '/' .. node .. '/' .. name)
      local left = m[2] and others(m[2], part) or ''
      if m[2] then redis.call('HSET', mt, 'todo', left) end
      released[id] = {is_open = not m[3], left = left}
    end
  end
  out[n] = mine and 1 or 0
  i = i + 8 + count
end
-- All parts of a message come in one call: only then is nobody to claim it any more.
for id, m in pairs(released) do
  local mt = P .. 'mt:' .. id
  redis.call('ZREM', claimed, id)
  redis.call('HDEL', mt, 'holder')
  if m.left == '' then
    redis.call('HDEL', mt, 'todo', 'most')
    if m.is_open and wait > 0 then redis.call('ZADD', P .. 'zset:report-due', at + wait, id) end
  elseif m.is_open then
    redis.call('HSET', mt, 'state', 'pending')
    queue(id, true)
  end
end
return out
