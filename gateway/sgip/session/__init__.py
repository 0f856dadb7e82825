"""One connection, seen from one of its ends: what it sends and takes, and when it ends."""
