"""`run_archiver`: `due` finds messages that may move, `archiver` moves messages, `answers` removes
answers that the log policy no longer keeps, `retention` has the times for which rows are kept.

`stores` gives hot tables and archive the same interface. `restore` brings messages back; `due`
remembers restored messages.
"""
