"""`run_archiver`: `due` finds what may move, `move` moves it, `retention` says what may be deleted,
`listing` shows hot and cold as one. `restore` is the way back, `restored` what has gone it."""
