"""Access to the API: keys and their cache, scopes, and rate limits of keys and addresses."""
