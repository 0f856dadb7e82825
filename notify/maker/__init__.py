"""`run_maker`: split messages into a copy a subscription, queue what is due."""
