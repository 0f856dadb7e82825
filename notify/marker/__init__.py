"""`run_marker`: store the result of each delivery."""
