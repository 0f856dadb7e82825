"""How fast and how often: rate limit, circuit breaker, backoff."""
