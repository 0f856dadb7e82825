"""Search over Redis and the archive, and the timeline of a message."""
