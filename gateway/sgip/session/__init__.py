"""A connection, seen from one of its ends: its frames, its state and its end."""
