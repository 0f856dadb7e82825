"""The settings of CRM sync; `msgplatform.settings` takes over every name in capitals."""

from msgplatform import env

# Leads without an API key that one address may send; many people share that of a mobile network.
# `off`: any.
CRM_RATE_PER_IP = env.text("CRM_RATE_PER_IP", "60/min")
# Leads without an API key that one landing page stores; above that an address that has stored none
# within a minute may still store one.
CRM_RATE_APPKEY = env.text("CRM_RATE_APPKEY", "1200/min")
# How long records stay with a handler before they are queued again; a call's deadline is shorter.
CRM_LEASE_SECONDS = env.integer("CRM_LEASE_SECONDS", 120, 5, 3600)
# The longest pause between two probes of a CRM that keeps failing, give or take a fifth.
CRM_BREAKER_SECONDS = env.number("CRM_BREAKER_SECONDS", 300, 1, 3600)
# How long a copy of each operation stays in Redis; 0: none.
CRM_OPERATION_DAYS = env.number("CRM_OPERATION_DAYS", 7, 0, 90)
# The memory of Redis for all these copies, in MiB; the oldest go first.
CRM_COPIES_MB = env.integer("CRM_COPIES_MB", 1024, 1, 1_000_000)
# How long runs, operations, their items and the exception log are kept; 0: for ever.
CRM_KEEP_DAYS = env.integer("CRM_KEEP_DAYS", 90, 0, 36500)
