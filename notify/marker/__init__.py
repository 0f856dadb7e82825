"""`run_marker`: write back what became of each delivery."""
