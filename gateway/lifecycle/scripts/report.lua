-- Reports. ARGV for each: "seqno:ts", node, user number, state, error, the gateways on whose messages
-- it counts as " 7 8 " ('': any), JSON kept when nothing matches.
-- Returns for each: matched, waiting (state 1: not final), repeated, unmatched, foreign (the Submit
-- went to another gateway).
local out = {}

local function take(name, node, user, state, err, gateways)
  local sub = read_submit(name)
  -- A gateway may leave out the 86 of the Submit's number, or put one in front.
  local id = sub and sub.node == node and (sub.users[user] or sub.users['86' .. user]
    or (string.sub(user, 1, 2) == '86' and sub.users[string.sub(user, 3)]))
  if not id then return 'unmatched' end
  if gateways ~= '' and not string.find(gateways, ' ' .. sub.gateway .. ' ', 1, true) then
    return 'foreign'
  end
  local mt, report = P .. 'mt:' .. id, P .. 'report:' .. id
  local m = redis.call('HMGET', mt, 'parts', 'final')
  if not m[1] then return 'unmatched' end
  if not sub.result then
    submit_accepted(name, sub)
    m = redis.call('HMGET', mt, 'parts', 'final')
  end
  if state == '1' then return 'waiting' end
  if redis.call('HSETNX', report, sub.part, state .. ':' .. err .. ':' .. STAMP) == 0 then
    return 'repeated'
  end
  if state ~= '0' then
    finish(id, m[2], 'failed', err)
  elseif m[1] == '1' or redis.call('HLEN', report) == tonumber(m[1]) then
    finish(id, m[2], 'delivered', '0')
  end
  return 'matched'
end

for i = 1, #ARGV, 7 do
  local what = take(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
  if (what == 'unmatched' or what == 'foreign') and ARGV[i + 3] ~= '1' then
    push('RPUSH', P .. 'list:report-unmatched', ARGV[i + 6])
  end
  out[#out + 1] = what
end
return done(out)
