"""Posts and relations, durable before the answer; called by the REST API (and by the demo)."""
