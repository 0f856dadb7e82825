-- The next counters of sequences. KEYS: counter. ARGV: how many. Returns the last one.
return redis.call('INCRBY', KEYS[1], ARGV[1])
