"""The intake of every flow: verdicts on items, storing each item once, group commit."""
