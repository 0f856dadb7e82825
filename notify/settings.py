"""The settings of Notify; `msgplatform.settings` takes over every name in capitals."""

from msgplatform import env

# How long the work of a killed program waits until another one takes it; a sender's waits less.
NOTIFY_LEASE_SECONDS = env.integer("NOTIFY_LEASE_SECONDS", 120, 5, 3600)
# The deadline of one delivery; a subscription may have its own.
NOTIFY_TIMEOUT_SECONDS = env.number("NOTIFY_TIMEOUT_SECONDS", 15, 0.5, 60)
# The circuit breaker of each subscription; `no` is for measuring the window alone.
NOTIFY_BREAKER_ENABLED = env.flag("NOTIFY_BREAKER_ENABLED", True)
# The longest pause between two probes of a consumer that keeps failing, give or take a fifth.
NOTIFY_BREAKER_SECONDS = env.number("NOTIFY_BREAKER_SECONDS", 300, 1, 600)
# Behind an open breaker a delivery waits for at least so long before it is given up, however short
# its subscription's schedule is. A maker gives up none before it has run, and has seen the breaker
# open, for so long without a gap.
NOTIFY_BREAKER_KEEP_HOURS = env.number("NOTIFY_BREAKER_KEEP_HOURS", 1, 0, 168)
# A subscription whose every attempt failed for this long makes an alert; 0: never.
NOTIFY_FAILING_MINUTES = env.number("NOTIFY_FAILING_MINUTES", 15, 0, 10_080)
# A subscription whose every attempt failed for this long is disabled; 0: never.
NOTIFY_DISABLE_AFTER_HOURS = env.number("NOTIFY_DISABLE_AFTER_HOURS", 120, 0, 8760)
# How long a rotated signing secret goes on signing beside the new one.
NOTIFY_ROTATION_HOURS = env.number("NOTIFY_ROTATION_HOURS", 24, 0, 168)
# Days until a message that reached every consumer moves to the archive.
NOTIFY_KEEP_DAYS = env.number("NOTIFY_KEEP_DAYS", 7, 0, 3650)
# Days until a message with a delivery that failed for good moves to the archive.
NOTIFY_KEEP_FAILED_DAYS = env.number("NOTIFY_KEEP_FAILED_DAYS", 30, 0, 3650)
# Days from acceptance until the archive deletes a message; never fewer than
# NOTIFY_KEEP_FAILED_DAYS, and at least a week more than the default schedule takes; 0: never.
NOTIFY_ARCHIVE_DAYS = env.integer("NOTIFY_ARCHIVE_DAYS", 365, 0, 36500)
