"""Move a business system from one cell to another, in a file with its objects (as in a platform
file), its API keys and its idempotency keys."""
