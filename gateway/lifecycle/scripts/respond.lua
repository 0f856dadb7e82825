-- What Submit_Resps mean. ARGV: most tries, then for each response: "seqno:ts", result, verdict
-- (accepted, again, refused, unanswered, used), seconds until the next try.
-- `again` sends the part under a new sequence; `refused` ends the message of a Submit with one user,
-- and halves a pack: also one of which the others have ended, for the fault may have been theirs.
-- A Submit whose bytes went out again is not put off for `again`: the gateway is busy now, but may have
-- taken it before. It waits for its answer as before, so that the same bytes go out once more. For the
-- same reason its sequence is `used` by itself.
-- A message that nobody knew of (unknown) has failed when its Submit is refused late.
-- Returns for each: done, repeated (known already), unanswered, unknown (no such Submit).
local most, out = tonumber(ARGV[1]), {}

-- A message that is queued already, for another of its parts, only gets more to do: it must be in one
-- queue once. The parts that come back together are one try, and halving a pack is none. It stays in
-- `report-due`: its gateway may be gone for good, and it must end.
local function send_again(id, part, delay, result, pack)
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'state', 'todo', 'most', 'gateway', 'final')
  redis.call('HSET', mt, 'state', 'pending', 'todo', m[2] and m[2] .. ' ' .. part or part,
    'refused:' .. part, result)
  if pack and pack < (tonumber(m[3]) or math.huge) then redis.call('HSET', mt, 'most', pack) end
  local scheduled = P .. 'zset:schedule-' .. m[4]
  if m[1] == 'pending' then
    redis.call('ZADD', scheduled, 'XX', 'GT', moment(AT + delay), id)
    return
  end
  if not pack and redis.call('HINCRBY', mt, 'tries', 1) > most then
    redis.call('HSET', mt, 'r:' .. part, result)
    return finish(id, m[5], 'failed', 'the gateway stayed busy')
  end
  redis.call('ZADD', scheduled, moment(AT + delay), id)
end

local function refuse(id, part, name, result, before)
  redis.call('HSET', P .. 'submit-failed:' .. id, 'result', result, 'submit', name, 'part', part,
    'at', STAMP)
  sadd(P .. 'set:response-fail', id)
  redis.call('HSET', P .. 'mt:' .. id, 'r:' .. part, result, 'responded_at', STAMP)
  finish(id, before, 'failed', result)
end

local function refused(name, sub, result, verdict, delay)
  redis.call('HSET', P .. 'submit:' .. name, 'result', result)
  answered(name, sub.gateway)
  local open, size = {}, 0
  for _ in pairs(sub.users) do size = size + 1 end
  for _, id in pairs(sub.users) do
    local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'final', 'unrefused')
    if m[3] then redis.call('HINCRBY', P .. 'mt:' .. id, 'unrefused', -1) end
    if m[1] and not m[2] then
      open[#open + 1] = id
    elseif m[2] == 'unknown' and size == 1 and verdict == 'refused' then
      refuse(id, sub.part, name, result, m[2])
    elseif m[1] then
      -- It ended before, by another part: this one is not sent again, and not billed.
      redis.call('HSETNX', P .. 'mt:' .. id, 'r:' .. sub.part, result)
    end
  end
  for _, id in ipairs(open) do
    if verdict == 'again' then
      send_again(id, sub.part, delay, result)
      -- 32 (system failure) may be due to one of them: smaller packs, and each is still a try.
      if result == '32' and size > 1 then
        redis.call('HSET', P .. 'mt:' .. id, 'most', math.max(1, math.floor(#open / 2)))
      end
    elseif size > 1 then
      send_again(id, sub.part, 0, result, math.max(1, math.floor(#open / 2)))
    else
      refuse(id, sub.part, name, result)
    end
  end
end

for i = 2, #ARGV, 4 do
  local name, result, verdict = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local sub = read_submit(name)
  if sub and verdict == 'used' then verdict = sub.is_repeated and 'accepted' or 'refused' end
  local what = 'done'
  if not sub then
    what = 'unknown'
  elseif sub.result then
    what = 'repeated'
  elseif verdict == 'unanswered' or verdict == 'again' and sub.is_repeated then
    what = 'unanswered'
  elseif verdict == 'accepted' then
    submit_accepted(name, sub)
  else
    refused(name, sub, result, verdict, tonumber(ARGV[i + 3]))
  end
  out[#out + 1] = what
end
return done(out)
