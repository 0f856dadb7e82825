-- Messages whose Report did not come in time. With report flag 0 (on failure) this means that nothing
-- failed: accepted, if all parts were. One whose Submits were all refused (busy) failed: its gateway is
-- gone since. Others end as unknown. ARGV: how many. Returns how many.
local due = REPORT_DUE
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', STAMP, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do
  zrem(due, id)
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'report_flag', 'parts', 'ok', 'final',
    'unrefused')
  if m[1] == '0' and m[2] and m[2] == m[3] then
    finish(id, m[4], 'accepted', '0')
  elseif m[5] == '0' then
    finish(id, m[4], 'failed', 'no gateway took it')
  else
    lose(id, 'no report')
  end
end
return done(#ids)
