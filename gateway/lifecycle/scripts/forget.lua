-- Archived: delete every key of these messages. ARGV: id, the ending that was archived, … flat.
-- A message whose ending changed meanwhile stays, for its second event and the next archiving; what
-- was passed on by then is put into the list once more, since this lease may be that of another pump.
-- Returns the ids that are gone.
local gone = {}
for i = 1, #ARGV, 2 do
  local id, final = ARGV[i], ARGV[i + 1]
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'final', 'submits', 'published')
  if not m[1] or m[1] == final and m[1] == (m[3] or final) then
    for name in string.gmatch(m[2] or '', '%d+/%d+/(%S+)') do
      local key = P .. 'submit:' .. name
      if redis.call('EXISTS', key) == 1 and redis.call('HINCRBY', key, 'open', -1) <= 0 then
        local gateway = redis.call('HGET', key, 'gateway')
        answered(name, gateway)
        redis.call('DEL', key)
      end
    end
    redis.call('DEL', mt, P .. 'mt-seqno:' .. id, P .. 'mt-ts:' .. id, P .. 'report:' .. id,
      P .. 'submit-failed:' .. id)
    redis.call('SREM', P .. 'set:response-fail', id)
    redis.call('SREM', P .. 'set:response-succ', id)
    redis.call('ZREM', P .. 'zset:report-due', id)
    gone[#gone + 1] = id
  elseif m[1] == m[3] then
    redis.call('RPUSH', P .. 'list:finish', id)
  end
  redis.call('ZREM', P .. 'zset:finishing', id)
end
return gone
