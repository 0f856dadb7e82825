-- Take in MOs and UserRpts. ARGV: seconds for which a sequence is remembered, then for each: key of
-- its sequence and content (mo-seen), that of an earlier version, id, JSON. Returns for each 1, or 0 for
-- a repeat.
local out = {}
for i = 2, #ARGV, 4 do
  local seen, earlier, id, json = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('EXISTS', earlier) == 0 and redis.call('SET', seen, id, 'NX', 'EX', ARGV[1]) then
    take_mo(id, json)
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return out
