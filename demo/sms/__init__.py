"""SMS' part of the demo: simulated operators, business systems that send, sinks that listen."""
