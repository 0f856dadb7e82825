-- Messages with what became of them. ARGV: ids. Returns for each nothing when it is gone, else a list:
-- `msg`, `state`, `final`, `error`, `gateway`, `parts`, the times of acceptance, Submit, response and
-- Report, `submits`, the results of responses as "part/result …", Reports as "part/state:error:time …",
-- the events of endings that were announced before this one (announce.lua), for parts that are to be
-- sent again the result for which, as "part/result …", the id of the event that has its ending beside others,
-- and the ending that was published.
local out = {}

local function result_of_each(mt, parts)
  local found = {}
  for part = 1, parts do
    local result = redis.call('HGET', mt, 'r:' .. part)
    if result then found[#found + 1] = part .. '/' .. result end
  end
  return table.concat(found, ' ')
end

local function refusal_of_each(mt, todo)
  local found = {}
  for part in string.gmatch(todo, '%d+') do
    local result = redis.call('HGET', mt, 'refused:' .. part)
    if result then found[#found + 1] = part .. '/' .. result end
  end
  return table.concat(found, ' ')
end

local function report_of_each(report)
  local found, all = {}, redis.call('HGETALL', report)
  for i = 1, #all, 2 do found[#found + 1] = all[i] .. '/' .. all[i + 1] end
  return table.concat(found, ' ')
end

for n, id in ipairs(ARGV) do
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'msg', 'state', 'final', 'error', 'gateway', 'parts',
    'accepted_at', 'submitted_at', 'responded_at', 'reported_at', 'submits', 'r:1',
    'said:unknown', 'said:expired', 'todo', 'event', 'published')
  local parts = tonumber(m[6]) or 0
  if m[12] and parts == 1 then
    m[12] = '1/' .. m[12]
  else
    m[12] = result_of_each(mt, parts)
  end
  m[18] = m[17] or ''
  m[16], m[17] = m[15] and refusal_of_each(mt, m[15]) or '', m[16] or ''
  m[14], m[15] = m[13] or '', m[14] or ''
  m[13] = m[11] and report_of_each(P .. 'report:' .. id) or ''
  out[n] = m[1] and m
end
return out
