"""Feed: a post reaches the timeline of every friend and follower, paced by the server's load."""
