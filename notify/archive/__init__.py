"""`run_archiver`: `due` finds what may move, `move` moves it, `retention` says what is kept.

`stores` and `listing` show hot and archived messages as one. `restore` brings messages back,
`restored` remembers which came back.
"""
