"""The loop around a program's `turn()`: signals, waiting, clean connections, heartbeat."""

# Dotted names of functions that make a thread beside the loop of each program that `watches`, by
# its role. Apps add to it when they are ready.
threads: list[str] = []
