-- Take in MOs and UserRpts. ARGV: seconds for which a sequence is remembered, then for each: key of
-- its sequence (mo-seen), id, JSON. Returns for each 1, or 0 for a repeat.
local out = {}
for i = 2, #ARGV, 3 do
  local seen, id, json = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('SET', seen, id, 'NX', 'EX', ARGV[1]) then
    take_mo(id, json)
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return out
