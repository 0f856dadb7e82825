"""What the intake of every flow uses: a verdict on each item, each stored once, group commit."""
