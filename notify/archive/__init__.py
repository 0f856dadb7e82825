"""`run_archiver`: `due` finds messages that may move, `archiver` moves messages, `retention` has
the times for which rows are kept, and removes answers that the log policy no longer keeps.

`stores` gives hot tables and archive the same interface. `restore` brings messages back; `due`
remembers restored messages.
"""
