-- Remember Submits before they are written to a socket. ARGV: gateway, holder, seconds until the
-- same bytes go out again, number of Submits, then for each: seqno, ts, node, part, parts, frame,
-- JSON of user → id, number of members, ids.
-- Returns for each 1, or 0 when a member is not this holder's any more: such a Submit is not sent.
local gateway, holder, patience = ARGV[1], ARGV[2], tonumber(ARGV[3])
local at, i, out = now(), 5, {}
local claimed = P .. 'zset:claimed-' .. gateway
local released = {}
for n = 1, tonumber(ARGV[4]) do
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
      local names = redis.call('HGET', mt, 'submits')
      redis.call('HSET', mt, 'state', 'submitted', 'submitted_at', at, 'parts', parts,
        'submits', (names and names .. ' ' or '') .. part .. '/' .. node .. '/' .. name)
      redis.call('HDEL', mt, 'todo', 'most')
      released[#released + 1] = id
    end
  end
  out[n] = mine and 1 or 0
  i = i + 8 + count
end
-- All parts of a message come in one call: only then is nobody to claim it any more.
for _, id in ipairs(released) do
  redis.call('ZREM', claimed, id)
  redis.call('HDEL', P .. 'mt:' .. id, 'holder')
end
return out
