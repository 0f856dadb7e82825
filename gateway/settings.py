"""The settings of SMS; `msgplatform.settings` takes over every name in capitals."""

from __future__ import annotations

from msgplatform import env

SMS_REDIS_URL = env.redis_url("SMS_REDIS_URL", "sms.sock")
SMS_REDIS_EMBEDDED = not env.secret("SMS_REDIS_URL")

SMS_IDEMPOTENCY_SECONDS = env.integer("SMS_IDEMPOTENCY_SECONDS", 86_400, 60, 30 * 86_400)
# How long what a killed sender, forwarder or pump had in hand waits for another one.
SMS_LEASE_SECONDS = env.integer("SMS_LEASE_SECONDS", 30, 5, 600)
SMS_SCHEDULE_DAYS = env.integer("SMS_SCHEDULE_DAYS", 30, 1, 365)
# Days in the archive, from acceptance; 0: for ever.
SMS_ARCHIVE_DAYS = env.integer("SMS_ARCHIVE_DAYS", 365, 0, 36500)
# The account whose MOs are those that no number and no keyword gives to another; '': nobody's.
SMS_DEFAULT_ACCOUNT = env.text("SMS_DEFAULT_ACCOUNT", "")
# Where the operator's gateways reach us with Reports and MOs.
SMS_RECEIVER_HOST = env.text("SMS_RECEIVER_HOST", "127.0.0.1")
SMS_RECEIVER_PORT = env.integer("SMS_RECEIVER_PORT", 8801, 1, 65_535)
