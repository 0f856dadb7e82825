-- Take in calls. ARGV: idempotency ttl, number of calls, then for each call: idempotency key ('' for
-- none), hash of the payload, number of messages, and for each message: id, gateway, priority,
-- report flag, time before which it is not sent (0: now), JSON.
-- Returns for each call: '' when it is new, else the JSON {hash, ids} of the first call.
local ttl, calls = ARGV[1], tonumber(ARGV[2])
local i, out, count = 3, {}, 0

-- Not what is there: the script runs again when its answer was lost.
local function store(at)
  local id, gateway, due = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 4])
  local mt = P .. 'mt:' .. id
  if redis.call('HSETNX', mt, 'msg', ARGV[at + 5]) == 0 then return end
  redis.call('HSET', mt, 'state', 'pending', 'gateway', gateway, 'priority', ARGV[at + 2],
    'report_flag', ARGV[at + 3], 'accepted_at', STAMP)
  if due > AT then
    zadd(P .. 'zset:schedule-' .. gateway, moment(due), id)
  else
    push('LPUSH', pending_key(gateway, ARGV[at + 2]), id)
  end
  count = count + 1
end

for call = 1, calls do
  local key, hash, messages = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  i = i + 3
  local first = key ~= '' and redis.call('GET', key) or false
  local ids = {}
  for n = 1, messages do
    ids[n] = ARGV[i]
    if not first then store(i) end
    i = i + 6
  end
  if key ~= '' and not first then
    redis.call('SET', key, cjson.encode({hash = hash, ids = ids}), 'EX', ttl)
  end
  out[call] = first or ''
end
if count > 0 then
  redis.call('INCRBY', P .. 'mt-GID', count)
  -- By minute, for the console's charts: of the last day and a little more.
  local key, minute = P .. 'mt-minutes', math.floor(AT / 60)
  if redis.call('HINCRBY', key, minute, count) == count and redis.call('HLEN', key) > 1500 then
    for _, field in ipairs(redis.call('HKEYS', key)) do
      if tonumber(field) < minute - 1499 then redis.call('HDEL', key, field) end
    end
  end
end
return done(out)
