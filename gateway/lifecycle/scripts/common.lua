-- Put before every other script. Ids are strings throughout: a Lua number loses digits beyond 2^53.
local P = '{sms}:'
-- Made once: Lua would make the name anew for each message.
local SUBMITED, RESPONSE_SUCC = P .. 'set:submited', P .. 'set:response-succ'
local REPORT_DUE, LIST_REPORT = P .. 'zset:report-due', P .. 'list:report'

local TIME = redis.call('TIME')
local AT = tonumber(TIME[1]) + tonumber(TIME[2]) / 1000000
-- As text at once: Redis would print all 17 digits, and for each command anew.
local function moment(at) return string.format('%.6f', at) end
local STAMP = moment(AT)

-- One command for many values, in portions that Lua's stack can hold. `key` is nil for a command of keys.
local function many(command, key, values)
  for i = 1, #values, 4000 do
    local last = math.min(i + 3999, #values)
    if key then
      redis.call(command, key, unpack(values, i, last))
    else
      redis.call(command, unpack(values, i, last))
    end
  end
end

-- What happens to sets and lists is gathered and done when the script ends: one command for all its
-- messages. The last word on a member counts. A script that reads one of them calls `settle` before.
local zsets, sets, gone, lists = {}, {}, {}, {LPUSH = {}, RPUSH = {}}

local function of_key(where, key)
  local values = where[key]
  if not values then
    values = {}
    where[key] = values
  end
  return values
end

local function zadd(key, score, member) of_key(zsets, key)[member] = score end
local function zrem(key, member) of_key(zsets, key)[member] = false end
local function sadd(key, member) of_key(sets, key)[member] = true end
local function srem(key, member) of_key(sets, key)[member] = false end

local function push(command, key, value)
  local values = of_key(lists[command], key)
  values[#values + 1] = value
end

local function settle()
  for command, of_command in pairs(lists) do
    for key, values in pairs(of_command) do many(command, key, values) end
  end
  for key, members in pairs(zsets) do
    local put, out = {}, {}
    for member, score in pairs(members) do
      if score then
        put[#put + 1] = score
        put[#put + 1] = member
      else
        out[#out + 1] = member
      end
    end
    many('ZADD', key, put)
    many('ZREM', key, out)
  end
  for key, members in pairs(sets) do
    local put, out = {}, {}
    for member, is_in in pairs(members) do
      if is_in then put[#put + 1] = member else out[#out + 1] = member end
    end
    many('SADD', key, put)
    many('SREM', key, out)
  end
  many('DEL', nil, gone)
  zsets, sets, gone, lists = {}, {}, {}, {LPUSH = {}, RPUSH = {}}
end

local function done(result)
  settle()
  return result
end

local function pending_key(gateway, priority)
  if priority and tonumber(priority) > 0 then
    return P .. 'list:pending-' .. gateway .. '-' .. priority
  end
  return P .. 'list:pending-' .. gateway
end

-- Whether anything of a gateway is pending, or due by now in one of these sets.
local function is_waiting(gateway, due)
  for priority = 0, 9 do
    if redis.call('EXISTS', pending_key(gateway, priority)) == 1 then return true end
  end
  for _, what in ipairs(due) do
    if redis.call('ZCOUNT', P .. 'zset:' .. what .. '-' .. gateway, '-inf', STAMP) > 0 then
      return true
    end
  end
  return false
end

-- Whether a gateway may have taken a message: not when each of its Submits was refused. One of an older
-- version has no `unrefused`.
local function was_sent(submits, unrefused) return submits and unrefused ~= '0' end

-- Put a message in front of the others of its priority.
local function queue_first(id)
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'priority')
  if m[1] then push('RPUSH', pending_key(m[1], m[2]), id) end
end

-- What may be sent by now, a thousand at once: first sends behind what waits, in the order of their times,
-- and what was in a Submit before to the front. Returns how many.
local function queue_due(gateway)
  local scheduled, returned = P .. 'zset:schedule-' .. gateway, {}
  local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', STAMP, 'LIMIT', 0, 1000)
  for _, id in ipairs(due) do
    zrem(scheduled, id)
    local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'priority', 'submits')
    if m[3] then
      returned[#returned + 1] = id
    elseif m[1] then
      push('LPUSH', pending_key(m[1], m[2]), id)
    end
  end
  for i = #returned, 1, -1 do queue_first(returned[i]) end  -- the first one last
  settle()
  return #due
end

local FINAL = {delivered = 3, failed = 3, accepted = 3, expired = 2, unknown = 1}

-- The message's end. It is published once, and again when a higher ending follows. `before` is its
-- `final`.
local function finish(id, before, final, err)
  if before and (FINAL[before] or 0) >= FINAL[final] then return 0 end
  redis.call('HSET', P .. 'mt:' .. id, 'final', final, 'error', err, 'state', 'reported',
    'reported_at', STAMP)
  zrem(REPORT_DUE, id)
  srem(RESPONSE_SUCC, id)
  push('RPUSH', LIST_REPORT, id)
  return 1
end

-- End a message as unknown, unless it is gone or has a higher ending.
local function lose(id, err)
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'final')
  if m[1] then finish(id, m[2], 'unknown', err) end
end

-- The gateway accepted one part of a message; a Report implies it when the response was lost.
local function part_accepted(id, part)
  local mt, result = P .. 'mt:' .. id, 'r:' .. part
  local m = redis.call('HMGET', mt, 'parts', result, 'ok', 'report_flag', 'final')
  if not m[1] or m[2] then return end
  local ok = (tonumber(m[3]) or 0) + 1
  if ok < tonumber(m[1]) then
    redis.call('HSET', mt, result, '0', 'ok', ok)
  elseif m[4] == '2' then
    -- No Report will say more, so that a late response is the end of what was unknown too.
    redis.call('HSET', mt, result, '0', 'ok', ok, 'responded_at', STAMP)
    finish(id, m[5], 'accepted', '0')
  elseif m[5] then
    redis.call('HSET', mt, result, '0', 'ok', ok)
  else
    redis.call('HSET', mt, result, '0', 'ok', ok, 'state', 'responded', 'responded_at', STAMP)
    sadd(RESPONSE_SUCC, id)
  end
end

-- Nobody waits for this Submit's response any more.
local function answered(name, gateway)
  srem(SUBMITED, name)
  zrem(P .. 'zset:submit-due-' .. gateway, name)
end

local function submit_accepted(name, sub)
  redis.call('HSET', P .. 'submit:' .. name, 'result', '0')
  answered(name, sub.gateway)
  for _, id in pairs(sub.users) do part_accepted(id, sub.part) end
end

local function read_submit(name)
  local h = redis.call('HMGET', P .. 'submit:' .. name, 'users', 'part', 'gateway', 'node', 'result',
    'tries')
  if not h[1] then return nil end
  return {users = cjson.decode(h[1]), part = h[2], gateway = h[3], node = h[4], result = h[5],
    is_repeated = h[6] ~= '0'}
end

local function take_mo(id, json)
  redis.call('HSET', P .. 'mo:' .. id, 'msg', json, 'at', STAMP)
  redis.call('RPUSH', P .. 'list:mo-id', id)
  redis.call('INCR', P .. 'mo-GID')
end
