"""The loop around a program's `turn()`: signals, waiting, clean connections, heartbeat."""
