"""Each person's language and time zone (preferences), sessions that have ended."""
