"""Who may call: API keys and their cache, scopes, and how often a key or an address may."""
