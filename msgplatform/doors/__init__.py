"""The ways in: the API, the web server, the console."""
