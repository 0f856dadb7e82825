-- Reports. ARGV: seconds a Report is waited for, then for each: "seqno:ts", node, user number, state,
-- error, JSON kept when nothing matches.
-- Returns for each: matched, waiting (state 1: not final), repeated, unmatched.
local wait, at, out = tonumber(ARGV[1]), now(), {}

local function take(name, node, user, state, err)
  local sub = read_submit(name)
  local id = sub and sub.node == node and sub.users[user]
  if not id or redis.call('EXISTS', P .. 'mt:' .. id) == 0 then return 'unmatched' end
  if not sub.result then submit_accepted(name, sub, at, wait) end
  if state == '1' then return 'waiting' end
  local told = state .. ':' .. err .. ':' .. at
  if redis.call('HSETNX', P .. 'report:' .. id, sub.part, told) == 0 then return 'repeated' end
  local mt = P .. 'mt:' .. id
  redis.call('HSET', mt, 'p:' .. sub.part, state .. ':' .. err)
  local done = redis.call('HINCRBY', mt, 'reports', 1)
  if state ~= '0' then
    finish(id, 'failed', err, at)
  elseif done == tonumber(redis.call('HGET', mt, 'parts')) then
    finish(id, 'delivered', '0', at)
  end
  return 'matched'
end

for i = 2, #ARGV, 6 do
  local what = take(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
  if what == 'unmatched' and ARGV[i + 3] ~= '1' then
    redis.call('RPUSH', P .. 'list:report-unmatched', ARGV[i + 5])
  end
  out[#out + 1] = what
end
return out
