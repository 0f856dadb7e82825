-- Archived: delete every key of these messages. ARGV: id, the ending that was archived, … flat.
-- A message whose ending changed meanwhile stays, for its second event and the next archiving; what
-- was passed on by then is put into the list once more, since this lease may be that of another pump.
-- Returns the ids that are gone.
local out = {}

-- A Submit goes with the last of its members.
local function leave(name)
  local key = P .. 'submit:' .. name
  local h = redis.call('HMGET', key, 'open', 'gateway')
  if not h[1] then return end
  if tonumber(h[1]) > 1 then
    redis.call('HINCRBY', key, 'open', -1)
  else
    answered(name, h[2])
    redis.call('DEL', key)
  end
end

for i = 1, #ARGV, 2 do
  local id, final = ARGV[i], ARGV[i + 1]
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'final', 'submits', 'published')
  if not m[1] or m[1] == final and m[1] == (m[3] or final) then
    for name in string.gmatch(m[2] or '', '%d+/%d+/(%S+)') do leave(name) end
    for _, key in ipairs({'mt:', 'mt-seqno:', 'mt-ts:', 'report:', 'submit-failed:'}) do
      gone[#gone + 1] = P .. key .. id
    end
    srem(P .. 'set:response-fail', id)
    srem(P .. 'set:response-succ', id)
    zrem(P .. 'zset:report-due', id)
    out[#out + 1] = id
  elseif m[1] == m[3] then
    push('RPUSH', P .. 'list:finish', id)
  end
  zrem(P .. 'zset:finishing', id)
end
return done(out)
