-- Whether anything of a gateway is to be written now. ARGV: gateway. Returns 1 or 0.
local gateway = ARGV[1]
for priority = 0, 9 do
  if redis.call('EXISTS', pending_key(gateway, priority)) == 1 then return 1 end
end
for _, what in ipairs({'schedule', 'claimed', 'submit-due'}) do
  if redis.call('ZCOUNT', P .. 'zset:' .. what .. '-' .. gateway, '-inf', STAMP) > 0 then
    return 1
  end
end
return 0
