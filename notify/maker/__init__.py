"""`run_maker`: split messages into a delivery for each subscription, and queue due deliveries."""
