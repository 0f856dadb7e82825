"""What runs a bench: private servers, processes, load, sinks, the result."""
