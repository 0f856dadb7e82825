-- Submits whose answer is late. ARGV: gateway, seconds until the next time, most repeats, how many.
-- Returns name, frame, … flat: the very bytes that went out before. Beyond the most repeats the
-- messages are unknown until a Report says otherwise.
local gateway, most, out = ARGV[1], tonumber(ARGV[3]), {}
local due, again_at = P .. 'zset:submit-due-' .. gateway, moment(AT + ARGV[2])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', STAMP, 'LIMIT', 0, ARGV[4])) do
  local key = P .. 'submit:' .. name
  local frame = redis.call('HGET', key, 'frame')
  if not frame then
    answered(name, gateway)
  elseif redis.call('HINCRBY', key, 'tries', 1) > most then
    answered(name, gateway)
    for _, id in pairs(read_submit(name).users) do lose(id, 'no answer') end
  else
    zadd(due, again_at, name)
    out[#out + 1] = name
    out[#out + 1] = frame
  end
end
return done(out)
