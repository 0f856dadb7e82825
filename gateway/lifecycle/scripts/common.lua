-- Put before every other script. Ids are strings throughout: a Lua number loses digits beyond 2^53.
local P = '{sms}:'

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

local function pending_key(gateway, priority)
  if priority and tonumber(priority) > 0 then
    return P .. 'list:pending-' .. gateway .. '-' .. priority
  end
  return P .. 'list:pending-' .. gateway
end

-- Put a message behind the others of its priority, or in front of them.
local function queue(id, front)
  local m = redis.call('HMGET', P .. 'mt:' .. id, 'gateway', 'priority')
  if not m[1] then return end
  local key = pending_key(m[1], m[2])
  if front then redis.call('RPUSH', key, id) else redis.call('LPUSH', key, id) end
end

local FINAL = {delivered = 3, failed = 3, accepted = 3, expired = 2, unknown = 1}

-- The message's end: published once; again when what was unknown turns out.
local function finish(id, final, err, at)
  local mt = P .. 'mt:' .. id
  local before = redis.call('HGET', mt, 'final')
  if before and (FINAL[before] or 0) >= FINAL[final] then return 0 end
  redis.call('HSET', mt, 'final', final, 'error', err, 'state', 'reported', 'reported_at', at)
  redis.call('ZREM', P .. 'zset:report-due', id)
  redis.call('SREM', P .. 'set:response-succ', id)
  redis.call('RPUSH', P .. 'list:report', id)
  return 1
end

-- The gateway accepted one part of a message; a Report implies it when the response was lost.
local function part_accepted(id, part, at, wait)
  local mt = P .. 'mt:' .. id
  if redis.call('HSETNX', mt, 'r:' .. part, '0') == 0 then return end
  local ok = redis.call('HINCRBY', mt, 'ok', 1)
  local m = redis.call('HMGET', mt, 'parts', 'report_flag', 'final')
  if ok < tonumber(m[1]) then return end
  if m[2] == '2' then
    -- No Report will say more, so that a late response is the end of what was unknown too.
    redis.call('HSET', mt, 'responded_at', at)
    finish(id, 'accepted', '0', at)
  elseif not m[3] then
    redis.call('HSET', mt, 'state', 'responded', 'responded_at', at)
    redis.call('SADD', P .. 'set:response-succ', id)
    redis.call('ZADD', P .. 'zset:report-due', at + wait, id)
  end
end

-- Nobody waits for this Submit's response any more.
local function answered(name, gateway)
  redis.call('SREM', P .. 'set:submited', name)
  redis.call('ZREM', P .. 'zset:submit-due-' .. gateway, name)
end

local function submit_accepted(name, sub, at, wait)
  redis.call('HSETNX', P .. 'submit:' .. name, 'result', '0')
  answered(name, sub.gateway)
  for _, id in pairs(sub.users) do
    if redis.call('EXISTS', P .. 'mt:' .. id) == 1 then part_accepted(id, sub.part, at, wait) end
  end
end

local function read_submit(name)
  local h = redis.call('HMGET', P .. 'submit:' .. name, 'users', 'part', 'gateway', 'node', 'result')
  if not h[1] then return nil end
  return {users = cjson.decode(h[1]), part = h[2], gateway = h[3], node = h[4], result = h[5]}
end

local function take_mo(id, json, at)
  redis.call('HSET', P .. 'mo:' .. id, 'msg', json, 'at', at)
  redis.call('RPUSH', P .. 'list:mo-id', id)
  redis.call('INCR', P .. 'mo-GID')
end
