-- The speed limit shared by all senders of a gateway. KEYS: speed. ARGV: messages a second, wanted.
-- Returns how many of the wanted may go now, and the milliseconds until more may (GCRA).
local rate, wanted, at = tonumber(ARGV[1]), tonumber(ARGV[2]), AT
local due = tonumber(redis.call('GET', KEYS[1]) or 0)
local burst = math.max(1, math.floor(rate * 0.1))
-- Further ahead than the limit ever gets: the clock went back, or the limit was raised.
if due > at + burst / rate + 1 then due = 0 end
local base = math.max(due, at)
local allowed = math.max(0, math.min(wanted, math.floor(burst - (base - at) * rate + 1e-6)))
if allowed > 0 then
  due = base + allowed / rate
  redis.call('SET', KEYS[1], string.format('%.6f', due), 'PX', math.ceil((due - at) * 1000) + 1000)
end
local wait = math.max(0, (due - at) - (burst - 1) / rate)
return {allowed, math.ceil(wait * 1000)}
