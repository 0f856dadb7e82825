"""The settings of SMS; `msgplatform.settings` takes over every name in capitals."""

from msgplatform import env

# The truth of SMS until it is archived: `appendonly yes`, `appendfsync always`, `maxmemory-policy
# noeviction` (`docs/sms-redis.md`).
# By default: an embedded server, which `make up` starts
SMS_REDIS_URL = env.redis_url("SMS_REDIS_URL", "sms.sock")
SMS_REDIS_EMBEDDED = not env.secret("SMS_REDIS_URL")

# Replicas of the SMS Redis that must have a message before it is answered, a Submit before it is
# written to the gateway, a Report and an MO before they are answered: 1 with Sentinel, and
# `min-replicas-to-write` at least as much on its servers (`docs/scale.md`). With fewer replicas
# requests are answered with `outcome-unknown`, or refused. 0: the master's own file is enough.
SMS_REPLICAS = env.integer("SMS_REPLICAS", 0, 0, 5)
# How long idempotency keys are known: longer than callers repeat a request (the clients for two
# minutes).
SMS_IDEMPOTENCY_SECONDS = env.integer("SMS_IDEMPOTENCY_SECONDS", 86_400, 60, 30 * 86_400)
# How long what a killed sender, forwarder or pump had in hand waits for another one.
SMS_LEASE_SECONDS = env.integer("SMS_LEASE_SECONDS", 30, 5, 600)
# How far ahead a message may be scheduled.
SMS_SCHEDULE_DAYS = env.integer("SMS_SCHEDULE_DAYS", 30, 1, 365)
# A gateway at which every message failed for this long makes an alert; 0: never.
SMS_FAILING_MINUTES = env.number("SMS_FAILING_MINUTES", 15, 0, 10_080)
# Days until the archive forgets a message, from acceptance: at least 31, and a day more than
# SMS_SCHEDULE_DAYS and the hours for a Report (72: three days) together; 0: never.
SMS_ARCHIVE_DAYS = env.integer("SMS_ARCHIVE_DAYS", 365, 0, 36500)
# How long the SMS Redis keeps what was archived, compressed and 256 MiB at most, so that a restore
# of the database loses none of it (`manage.py sms_recover`): longer than the time between two
# backups; 0: not at all.
SMS_KEEP_ARCHIVED_HOURS = env.integer("SMS_KEEP_ARCHIVED_HOURS", 24, 0, 720)
# The account that gets the MOs whose number gives them to no other one.
# By default: none, they are archived only
SMS_DEFAULT_ACCOUNT = env.text("SMS_DEFAULT_ACCOUNT", "")
# The address at which the operator's gateways reach us with Reports and MOs; `::` is every
# address of this machine, IPv4 and IPv6.
SMS_RECEIVER_HOST = env.host("SMS_RECEIVER_HOST", "127.0.0.1")
# Its port.
SMS_RECEIVER_PORT = env.integer("SMS_RECEIVER_PORT", 8801, 1, 65_535)
