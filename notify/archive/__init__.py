"""The archive: `walk` finds what may move, `move` moves it, `partitions` and `retention` let the
oldest go, `reading` shows hot and cold as one."""
