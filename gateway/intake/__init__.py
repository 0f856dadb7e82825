"""Accept short messages: check, route, and make them durable before the answer."""
