"""Actions on many messages, which `run_bulk` runs: resend, replay, backfill; and the resend of one
message from its page."""
