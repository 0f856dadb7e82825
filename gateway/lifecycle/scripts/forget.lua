-- Archived: delete every key of these messages. ARGV: id, the ending and the number of facts that were
-- archived, … flat. Facts are its Submits, their results and its Reports; none is ever taken back.
-- A message whose ending changed meanwhile stays, for its second event and the next archiving, and so
-- does one of which more is known: the Report of another part may have come since. What was passed on
-- by then is put into the list once more, since this lease may be that of another pump.
-- Returns the ids that are gone.
local out = {}

-- A Submit goes with the last of its members.
local function leave(name)
  local key = P .. 'submit:' .. name
  local h = redis.call('HMGET', key, 'open', 'gateway', 'result')
  if not h[1] then return end
  if tonumber(h[1]) > 1 then
    redis.call('HINCRBY', key, 'open', -1)
  else
    if not h[3] then answered(name, h[2]) end
    gone[#gone + 1] = key
  end
end

local function names_of(submits)
  local names = {}
  for name in string.gmatch(submits or '', '%d+/%d+/(%S+)') do names[#names + 1] = name end
  return names
end

local function facts(id, m, names)
  local count = #names + redis.call('HLEN', P .. 'report:' .. id) + (m[5] and 1 or 0)
  for part = 2, tonumber(m[3]) or 1 do
    count = count + redis.call('HEXISTS', P .. 'mt:' .. id, 'r:' .. part)
  end
  return count
end

for i = 1, #ARGV, 3 do
  local id, final, known = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'final', 'published', 'parts', 'submits', 'r:1')
  local names = names_of(m[4])
  if not m[1] or m[1] == final and m[1] == (m[2] or final) and facts(id, m, names) == known then
    for _, name in ipairs(names) do leave(name) end
    for _, key in ipairs({'mt:', 'mt-seqno:', 'mt-ts:', 'report:'}) do
      gone[#gone + 1] = P .. key .. id
    end
    if not m[1] or m[1] == 'failed' then
      gone[#gone + 1] = P .. 'submit-failed:' .. id
      srem(P .. 'set:response-fail', id)
    end
    if not m[1] then  -- else its end has done that
      srem(RESPONSE_SUCC, id)
      zrem(REPORT_DUE, id)
    end
    out[#out + 1] = id
  elseif m[1] == m[2] then
    push('RPUSH', P .. 'list:finish', id)
  end
  zrem(P .. 'zset:finishing', id)
end
return done(out)
