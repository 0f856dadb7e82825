"""`run_maker`: split messages into a delivery for each subscription, queue what is due."""
