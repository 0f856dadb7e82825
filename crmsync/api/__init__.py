"""The REST API: leads, with an API key or from a page hosted elsewhere; policies and runs."""
