-- What Submit_Resps mean. ARGV: seconds a Report is waited for, most tries, then for each response:
-- "seqno:ts", result, verdict (accepted, again, refused), seconds until the next try.
-- `again` sends the part under a new sequence; `refused` ends a lone message and halves a pack.
-- Returns for each: done, repeated (known already), unknown (no such Submit).
local wait, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local at, out = now(), {}

-- A message that is queued already, for another of its parts, only gets more to do: it must be in one
-- queue once. The parts that come back together are one try, and halving a pack is none.
local function send_again(id, part, delay, pack)
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'state', 'todo', 'most', 'gateway')
  redis.call('HSET', mt, 'state', 'pending', 'todo', m[2] and m[2] .. ' ' .. part or part)
  if pack and pack < (tonumber(m[3]) or math.huge) then redis.call('HSET', mt, 'most', pack) end
  local scheduled = P .. 'zset:schedule-' .. m[4]
  if m[1] == 'pending' then
    redis.call('ZADD', scheduled, 'XX', 'GT', at + delay, id)
    return
  end
  redis.call('ZREM', P .. 'zset:report-due', id)
  if not pack and redis.call('HINCRBY', mt, 'tries', 1) > most then
    return finish(id, 'failed', 'tries', at)
  end
  redis.call('ZADD', scheduled, at + delay, id)
end

local function refuse(id, part, name, result)
  redis.call('HSET', P .. 'submit-failed:' .. id, 'result', result, 'submit', name, 'part', part,
    'at', at)
  redis.call('SADD', P .. 'set:response-fail', id)
  redis.call('HSET', P .. 'mt:' .. id, 'r:' .. part, result, 'responded_at', at)
  finish(id, 'failed', result, at)
end

for i = 3, #ARGV, 4 do
  local name, result, verdict, delay = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local sub = read_submit(name)
  if not sub then
    out[#out + 1] = 'unknown'
  elseif sub.result then
    out[#out + 1] = 'repeated'
  elseif verdict == 'accepted' then
    submit_accepted(name, sub, at, wait)
    out[#out + 1] = 'done'
  else
    redis.call('HSET', P .. 'submit:' .. name, 'result', result)
    answered(name, sub.gateway)
    local ids = {}
    for _, id in pairs(sub.users) do
      if redis.call('EXISTS', P .. 'mt:' .. id) == 1
        and not redis.call('HGET', P .. 'mt:' .. id, 'final') then ids[#ids + 1] = id end
    end
    for _, id in ipairs(ids) do
      if verdict == 'again' then
        send_again(id, sub.part, delay)
      elseif #ids > 1 then
        send_again(id, sub.part, 0, math.floor(#ids / 2))
      else
        refuse(id, sub.part, name, result)
      end
    end
    out[#out + 1] = 'done'
  end
end
return out
