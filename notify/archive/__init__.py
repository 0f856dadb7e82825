"""`run_archiver`: `due` finds messages that may move, `archiver` moves them, `answers` removes
answers that the log policy no longer keeps, `retention` says how long rows are kept.

`stores` shows hot and archived messages as one. `restore` brings messages back; `due` remembers
which came back.
"""
