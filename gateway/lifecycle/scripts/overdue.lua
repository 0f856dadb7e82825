-- Messages whose Report did not come in time end as unknown. ARGV: how many. Returns how many.
local due = P .. 'zset:report-due'
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', STAMP, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do
  zrem(due, id)
  lose(id, 'no report')
end
return done(#ids)
