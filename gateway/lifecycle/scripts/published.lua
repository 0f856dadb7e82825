-- Endings that were published: their messages go on to the archive, once for each ending.
-- KEYS: zset, list they were taken from, list they go to. ARGV: id, ending, id of the event that has the
-- ending beside others (else ''), … flat. Returns how many.
-- An entry of the lists is only a hint, more of them do no harm: what counts is in `mt:`.
local count = 0
for i = 1, #ARGV, 3 do
  local id, final, event = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local mt = P .. 'mt:' .. id
  local m = redis.call('HMGET', mt, 'final', 'published')
  zrem(KEYS[1], id)
  if m[1] and m[1] ~= final then
    -- It turned out otherwise after it was read. Whoever has that entry may be gone.
    push('RPUSH', KEYS[2], id)
  elseif m[1] then
    if event ~= '' then
      -- Also of one that was published before: after a restore it is in another event.
      redis.call('HSET', mt, 'published', final, 'event', event)
    elseif m[2] ~= final then
      redis.call('HSET', mt, 'published', final)
    end
    if m[2] ~= final then
      push('RPUSH', KEYS[3], id)
      count = count + 1
    end
  end
end
return done(count)
