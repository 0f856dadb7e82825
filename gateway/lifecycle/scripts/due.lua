-- Submits whose answer is late. ARGV: gateway, seconds until the next time, most repeats, how many.
-- Returns name, frame, … flat: the very bytes that went out before. Beyond the most repeats the
-- messages are unknown until a Report says otherwise.
local gateway, patience, most, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at, out = now(), {}
local due = P .. 'zset:submit-due-' .. gateway
for _, name in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', at, 'LIMIT', 0, count)) do
  local key = P .. 'submit:' .. name
  local frame = redis.call('HGET', key, 'frame')
  if not frame then
    answered(name, gateway)
  elseif redis.call('HINCRBY', key, 'tries', 1) > most then
    answered(name, gateway)
    for _, id in pairs(read_submit(name).users) do
      if redis.call('EXISTS', P .. 'mt:' .. id) == 1 then finish(id, 'unknown', 'no answer', at) end
    end
  else
    redis.call('ZADD', due, at + patience, name)
    out[#out + 1] = name
    out[#out + 1] = frame
  end
end
return out
