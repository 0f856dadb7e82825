"""SMS in Redis, from intake until the archive has it; `docs/sms-redis.md` is the table of keys."""
