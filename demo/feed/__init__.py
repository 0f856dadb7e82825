"""Feed's part of the demo: a town whose people post, make friends and fall out with each other."""
