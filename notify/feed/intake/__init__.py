"""Posts and relations are durable before the answer; called by the REST API."""
