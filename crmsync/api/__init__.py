"""The REST API: `/api/v1/leads`, with an API key or from a page hosted elsewhere."""
