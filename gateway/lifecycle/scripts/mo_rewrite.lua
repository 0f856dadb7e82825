-- What was found out about MOs. ARGV: id, JSON, … flat. One that is gone stays so.
for i = 1, #ARGV, 2 do
  local mo = P .. 'mo:' .. ARGV[i]
  if redis.call('EXISTS', mo) == 1 then redis.call('HSET', mo, 'msg', ARGV[i + 1]) end
end
return #ARGV / 2
