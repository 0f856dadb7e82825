-- Messages whose Report did not come in time end as unknown. ARGV: how many. Returns how many.
local at = now()
local ids = redis.call('ZRANGEBYSCORE', P .. 'zset:report-due', '-inf', at, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do
  if redis.call('EXISTS', P .. 'mt:' .. id) == 1 then finish(id, 'unknown', 'no report', at) end
  redis.call('ZREM', P .. 'zset:report-due', id)
end
return #ids
