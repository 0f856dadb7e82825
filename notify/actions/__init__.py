"""Actions on many messages, as `run_bulk` does them: resend, replay, make missing deliveries; and
one message sent again from its page."""
