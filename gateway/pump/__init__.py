"""`run_data_pump`: archive what is finished, from Redis into the database."""
