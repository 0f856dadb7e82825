"""Rate limit, circuit breaker, backoff."""
