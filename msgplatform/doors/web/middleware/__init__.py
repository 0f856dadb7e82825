"""Each person's language and time zone, sessions that have ended, headers of answers."""
