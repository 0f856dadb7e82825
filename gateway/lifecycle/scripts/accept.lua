-- Take in calls. ARGV: idempotency ttl, number of calls, key of this run ('' when each call has an
-- idempotency key), then for each call: idempotency key ('' for none), hash of the payload, counter of
-- the day ('' for none) and how far it may count, SP number of a text with several parts (''), number of
-- messages, and for each message: id, gateway, priority, report flag, time before which it is not sent
-- (0: now), JSON.
-- Returns for each call: '' when it is new, 'limit' when the day has no room for it, else the JSON
-- {hash, ids} of the first call.
local ttl, calls, run = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local RUN_KEPT = 60  -- seconds: longer than a client waits for a lost answer, and runs it again
local DAY_KEPT = 172800  -- seconds: clocks and time zones differ
local REFERENCE_KEPT = 345600  -- seconds: a gateway gives up after three days
local i, out, count = 4, {}, 0
-- The calls without a key that this run refused when it ran before, as ' 2 5 ': the messages of the others
-- may have ended, and be gone.
local before, refused, is_stored = run ~= '' and redis.call('GET', run), ' ', false

-- Not what is there: the script runs again when its answer was lost.
local function store(at, reference)
  local id, gateway, due = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 4])
  local mt = P .. 'mt:' .. id
  if redis.call('EXISTS', mt) == 1 then return end
  redis.call('HSET', mt, 'msg', ARGV[at + 5], 'state', 'pending', 'gateway', gateway, 'priority',
    ARGV[at + 2], 'report_flag', ARGV[at + 3], 'accepted_at', STAMP)
  if reference then redis.call('HSET', mt, 'udh', reference) end
  if due > AT then
    zadd(P .. 'zset:schedule-' .. gateway, moment(due), id)
  else
    push('LPUSH', pending_key(gateway, ARGV[at + 2]), id)
  end
  count = count + 1
end

-- Whether the day has room for a new call, which is counted then: once, if the script runs again.
local function has_room(counter, limit, messages, first_id)
  if counter == '' or redis.call('EXISTS', P .. 'mt:' .. first_id) == 1 then return true end
  local spent = tonumber(redis.call('GET', counter) or '0')
  if spent + messages > tonumber(limit) then return false end
  redis.call('INCRBY', counter, messages)
  if spent == 0 then redis.call('EXPIRE', counter, DAY_KEPT) end
  return true
end

-- A handset joins the parts of a long text by their sender and reference, 1 to 255: those of one number
-- follow each other, whoever sends from it.
local function next_reference(number)
  local key = P .. 'udh:' .. number
  local reference = 1 + redis.call('INCR', key) % 255
  redis.call('EXPIRE', key, REFERENCE_KEPT)
  return reference
end

for call = 1, calls do
  local key, hash, counter, limit = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local number, messages = ARGV[i + 4], tonumber(ARGV[i + 5])
  i = i + 6
  local first = key ~= '' and redis.call('GET', key) or false
  local is_repeat = key == '' and before
  if is_repeat and string.find(before, ' ' .. call .. ' ', 1, true) then first = 'limit' end
  -- Without messages it repeats a call that stands before it, for which there was no room.
  if not first and not is_repeat and (messages == 0 or not has_room(counter, limit, messages, ARGV[i])) then
    first = 'limit'
  end
  local is_new = not first and not is_repeat
  local reference = is_new and number ~= '' and next_reference(number)
  local ids = {}
  for n = 1, messages do
    ids[n] = ARGV[i]
    if is_new then store(i, reference) end
    i = i + 6
  end
  if key ~= '' and not first then
    redis.call('SET', key, cjson.encode({hash = hash, ids = ids}), 'EX', ttl)
  end
  if key == '' and is_new then is_stored = true end
  if key == '' and first == 'limit' then refused = refused .. call .. ' ' end
  out[call] = first or ''
end
if is_stored then redis.call('SET', run, refused, 'EX', RUN_KEPT) end
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
