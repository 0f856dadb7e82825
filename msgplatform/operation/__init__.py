"""The operation of an installation: backup, supervision, export of traces, commands."""
