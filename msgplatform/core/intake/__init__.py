"""The intake of every flow: a verdict on each item, each item stored once, group commit."""
