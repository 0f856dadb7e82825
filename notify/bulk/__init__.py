"""Actions on many messages, as `run_bulk` does them: requeue, replay, make missing deliveries."""
