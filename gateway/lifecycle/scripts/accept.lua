-- Take in calls. ARGV: idempotency ttl, number of calls, then for each call: idempotency key ('' for
-- none), hash of the payload, number of messages, and for each message: id, gateway, priority,
-- report flag, time before which it is not sent (0: now), JSON.
-- Returns for each call: '' when it is new, else the JSON {hash, ids} of the first call.
local ttl, calls = ARGV[1], tonumber(ARGV[2])
local at, i, out = now(), 3, {}
for call = 1, calls do
  local key, hash, count = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  i = i + 3
  local first = key ~= '' and redis.call('GET', key) or false
  local ids = {}
  for n = 1, count do
    local id = ARGV[i]
    ids[n] = id
    local mt = P .. 'mt:' .. id
    if not first and redis.call('EXISTS', mt) == 0 then
      redis.call('HSET', mt, 'msg', ARGV[i + 5], 'state', 'pending', 'gateway', ARGV[i + 1],
        'priority', ARGV[i + 2], 'report_flag', ARGV[i + 3], 'accepted_at', at)
      local due = tonumber(ARGV[i + 4])
      if due > at then
        redis.call('ZADD', P .. 'zset:schedule-' .. ARGV[i + 1], due, id)
      else
        redis.call('LPUSH', pending_key(ARGV[i + 1], ARGV[i + 2]), id)
      end
      redis.call('INCR', P .. 'mt-GID')
    end
    i = i + 6
  end
  if key ~= '' and not first then
    redis.call('SET', key, cjson.encode({hash = hash, ids = ids}), 'EX', ttl)
  end
  out[call] = first or ''
end
return out
