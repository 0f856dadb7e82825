"""`run_archiver`: `due` finds what may move, `move` moves it, `retention` says what may be deleted,
`listing` shows hot and cold as one."""
