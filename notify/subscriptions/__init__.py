"""The settings of a subscription and of its consumer, without I/O."""
