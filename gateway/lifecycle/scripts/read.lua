-- Messages with what became of them. ARGV: ids. Returns for each nothing when it is gone, else the values
-- of `messages.Row` as MessagePack: a reply of so many values would cost the other end more. `results`
-- and `refusals` are "part/result …", `reports` "part/state:error:time …".
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
    'accepted_at', 'submitted_at', 'responded_at', 'reported_at', 'submits', 'r:1', 'todo',
    'said:unknown', 'said:expired', 'event', 'published')
  local results = m[6] == '1' and m[12] and '1/' .. m[12] or result_of_each(mt, tonumber(m[6]) or 0)
  out[n] = m[1] and cmsgpack.pack({m[1], m[2] or '', m[3] or '', m[4] or '', m[5] or '0', m[6] or '1',
    m[7] or '0', m[8] or '0', m[9] or '0', m[10] or '0', m[11] or '', results,
    m[11] and report_of_each(P .. 'report:' .. id) or '', m[13] and refusal_of_each(mt, m[13]) or '',
    m[14] or '', m[15] or '', m[16] or '0', m[17] or ''})
end
return out
