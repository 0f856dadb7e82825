"""`run_archiver`: `due` finds what may move, `move` moves it, `partitions` and `retention` delete
the oldest, `listing` shows hot and cold as one."""
