-- Endings that a higher one may replace (unknown, expired), before they are published. ARGV: id, ending,
-- the event's payload, … flat. Returns for each the payload under which that ending was announced
-- first, or '' when the message has another ending now.
-- Who publishes a higher ending publishes first what was announced before: the forwarder that
-- announced it may be frozen, and go on much later; its event is a repeat then.
local out = {}
for i = 1, #ARGV, 3 do
  local mt, field = P .. 'mt:' .. ARGV[i], 'said:' .. ARGV[i + 1]
  local m = redis.call('HMGET', mt, 'final', field)
  if m[1] ~= ARGV[i + 1] then
    out[#out + 1] = ''
  else
    if not m[2] then redis.call('HSET', mt, field, ARGV[i + 2]) end
    out[#out + 1] = m[2] or ARGV[i + 2]
  end
end
return out
